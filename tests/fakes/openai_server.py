"""A scripted stand-in for vLLM's OpenAI server: real HTTP, real processes, a pseudo-model, no GPU.

As a process: `python tests/fakes/openai_server.py --script FILE.json [--speculative-config JSON] [--port P] …`.
In a test: `async with FakeServer(Script(...)) as server: … server.base_url`, or `with serving(Script(...)) as server:`
where the test is synchronous. The shapes of answers, streams and /metrics are those recorded from vLLM 0.32.0.
"""

import asyncio
import dataclasses
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # run as a file: make `tests.fakes` importable
    sys.path[0] = str(Path(__file__).parents[2])

from tests.fakes import startup
from tests.fakes.script import Script
from tests.fakes.server import FakeServer, serving

__all__ = ["FakeServer", "Script", "main", "serving"]


def main(argv: list[str] | None = None) -> int:
    """Run the server as a process, as vLLM would run."""
    args = startup.arguments(sys.argv[1:] if argv is None else argv)
    config: dict[str, Any] | None = args.speculative_config
    args.script = script = args.script.effective(
        speculating=config is not None, k=(config or {}).get("num_speculative_tokens")
    )
    if args.api_key:
        args.script = script = dataclasses.replace(script, api_key=args.api_key)
    if script.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        # vLLM binds its port before it loads and listens after: a client is refused until then.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((args.host, args.port))
    except OSError as error:
        print(f"OSError: {error}", flush=True)  # noqa: T201 - the log
        return 1
    startup.spawn_children(script)
    mapped = startup.map_shared_memory(script)
    startup.load(args)
    server = FakeServer(
        script,
        speculative_config=config,
        names=startup.served_names(args),
        max_model_len=args.max_model_len,
        spec_stats=args.per_request_spec_decode_metrics,
        log_stats=not args.disable_log_stats,
        die=lambda: os._exit(script.exit_code),
    )
    asyncio.run(_serve(server, listener))
    if mapped is not None:
        mapped.close()
    return 0


async def _serve(server: FakeServer, listener: socket.socket) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop.set)
    if not server.script.ignore_sigterm:
        loop.add_signal_handler(signal.SIGTERM, stop.set)
    await server.listen(listener)
    print(f"INFO:     Started server process [{os.getpid()}]", flush=True)  # noqa: T201 - the log
    print("INFO:     Application startup complete.", flush=True)  # noqa: T201 - the log
    if server.script.notify:
        startup.notify_ready()
    await stop.wait()
    startup.log("[shutdown] API server: shutdown triggered", source="launcher.py:254")
    await asyncio.sleep(server.script.stop_seconds)
    await server.close()
    print("INFO:     Application shutdown complete.", flush=True)  # noqa: T201 - the log


if __name__ == "__main__":
    sys.exit(main())
