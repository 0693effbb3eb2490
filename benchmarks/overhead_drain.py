"""Reads streams from the scripted server and throws them away, to show how fast that server is.

    python benchmarks/overhead_drain.py --port 8000 --streams 8

No HTTP, no events: raw sockets, large reads, the last bytes looked at for the end.
"""

import argparse
import selectors
import socket

END = b"0\r\n\r\n"
READ = 1 << 20
BODY = b'{"stream":true}'
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)


def drain(port: int, streams: int) -> int:
    """Read that many streams to their ends. Returns the bytes read."""
    total = 0
    with selectors.DefaultSelector() as selector:
        for _ in range(streams):
            sock = socket.create_connection(("127.0.0.1", port))
            sock.sendall(REQUEST)
            selector.register(sock, selectors.EVENT_READ, sock)
        while selector.get_map():
            for key, _ in selector.select():
                sock = key.data
                data = sock.recv(READ)
                total += len(data)
                if not data or data.endswith(END):
                    selector.unregister(sock)
                    sock.close()
    return total


def main() -> None:
    """Drain what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--streams", type=int, required=True)
    options = parser.parse_args()
    print(drain(options.port, options.streams))


if __name__ == "__main__":
    main()
