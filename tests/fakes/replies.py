"""What the fake server answers when it does not generate."""

import socket
import struct

from aiohttp import web


def error(
    status: int,
    message: str,
    param: str | None = None,
    kind: str | None = None,
    *,
    retry_after: str | None = None,
) -> web.Response:
    """Return an error in vLLM's form."""
    default = "BadRequestError" if status < 500 else "InternalServerError"
    body = {"error": {"message": message, "type": kind or default, "param": param, "code": status}}
    headers = None if retry_after is None else {"Retry-After": retry_after}
    return web.json_response(body, status=status, headers=headers)


def too_long(longest: int, prompt: int, most: int) -> web.Response:
    """Return the answer to a request that does not fit the context."""
    return error(
        400,
        f"This model's maximum context length is {longest} tokens. However, you requested {most} output "
        f"tokens and your prompt contains {prompt} input tokens. Please reduce the length of the input prompt.",
        "input_tokens",
    )


def reset(request: web.Request) -> None:
    """Reset the connection: the peer sees ECONNRESET."""
    transport = request.transport
    if transport is not None:
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
