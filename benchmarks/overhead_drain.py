"""Reads streams from the scripted server and throws them away: what any client must do, and nothing else.

    python benchmarks/overhead_drain.py --port 8000 --streams 8

No HTTP, no events: raw sockets, epoll, one buffer, the last bytes looked at for the end. Without a pace on the other
side it shows how fast the server is; with one, what a chunk costs a client at the least that reads each as it comes.
"""

import argparse
import json
import select
import socket
from pathlib import Path

END = b"0\r\n\r\n"
ROOM = 1 << 18


def drain(port: int, streams: int, tokens: int | None = None) -> int:
    """Read that many streams to their ends. Returns the bytes read."""
    body = json.dumps({"stream": True} | ({"max_tokens": tokens} if tokens else {})).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    buffer = bytearray(ROOM)
    socks: dict[int, socket.socket] = {}
    total = 0
    with select.epoll() as epoll:
        for _ in range(streams):
            sock = socket.create_connection(("127.0.0.1", port))
            sock.sendall(request)
            socks[sock.fileno()] = sock
            epoll.register(sock.fileno(), select.EPOLLIN)
        while socks:
            for handle, _ in epoll.poll():
                read = socks[handle].recv_into(buffer)
                total += read
                if not read or buffer[read - len(END) : read] == END:
                    epoll.unregister(handle)
                    socks.pop(handle).close()
    return total


def main() -> None:
    """Drain what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--tokens", type=int, help="of each answer; default: as the server pleases")
    parser.add_argument("--out", type=Path, help="a JSON file to write")
    options = parser.parse_args()
    result = {"streams": options.streams, "bytes": drain(options.port, options.streams, options.tokens)}
    if options.out is not None:
        options.out.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
