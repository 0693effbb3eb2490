"""A TCP server whose every byte the test decides."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def raw_server(handler: Handler) -> AsyncIterator[str]:
    """Serve connections with `handler` and yield the base URL. Every connection is closed at the end."""
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                await handler(reader, writer)
            finally:
                writer.close()
                await writer.wait_closed()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for task in connections:
        task.cancel()
    await asyncio.gather(*connections, return_exceptions=True)
