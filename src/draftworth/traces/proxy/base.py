"""What a recording proxy is told, what it tells, and the frames between its two processes.

The proxy is two processes. One passes bytes on between clients and the server and does nothing else with them; it
hands copies to the other, the recorder, over a socket. The recorder finds requests and answers in the copies and
writes the trace. Whatever goes wrong in it, traffic is not touched.
"""

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import blake2b
from pathlib import Path
from typing import Any

from draftworth.bench.address import Address
from draftworth.bench.base import Access

QUEUE_BYTES = 64 * 2**20
"""Most bytes that wait for the recorder; what comes then is not recorded."""
DRAIN_S = 30.0

FRAME = struct.Struct("<IBI")
"""Before each frame: number of the connection, kind, bytes that follow."""


class Kind(IntEnum):
    """What a frame of the passing process says."""

    OPEN = 0
    """A client has connected."""
    REQUEST = 1
    """Bytes of the client, as it sent them."""
    ANSWER = 2
    """Bytes of the server."""
    CLIENT_END = 3
    """The client has closed or reset the connection."""
    SERVER_END = 4
    """The server has."""
    LOST = 5
    """Bytes of this connection were not copied: what is under way on it cannot be recorded."""
    AGAIN = 6
    """A request begins on a connection that was lost; its number on the connection follows where it is known."""
    WHO_IS_IDLE = 7
    """Asks for the connections without a request under way."""
    FINISH = 8
    """The recording ends: what is under way is kept as far as it came."""


COMPLETION_PATHS = frozenset({b"/v1/completions", b"/v1/chat/completions"})
"""What is recorded, behind a base path if there is one; everything else is passed on only."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The fields that make a server tell token ids, as bytes to be put in front of a JSON object's end.

    Attributes:
        chat: for `/v1/chat/completions`.
        plain: for `/v1/completions`.
    """

    chat: bytes
    plain: bytes


@dataclass(frozen=True, slots=True)
class ProxyPlan:
    """What a proxy does.

    Attributes:
        upstream: the server.
        host: the address to listen on.
        port: the port to listen on; 0 for a free one.
        out: the trace.
        access: certificates to believe of an https server; its headers are used for the probe and for nothing else.
        sample: share of the requests that are recorded, above 0 to 1.
        seed: decides which.
        max_requests: the recording is complete after so many; None for no limit.
        duration_s: the recording is complete after so long; None for no limit.
        asked: fields put into requests; None leaves requests as they are.
        rewrite_host: whether the Host header is set to the server's.
        ends: whether the proxy ends when the recording is complete; if not, it goes on passing traffic.
        drain_s: how long streams under way may go on when the proxy ends.
        queue_bytes: most bytes that wait for the recorder.
        tokenizer: a tokenizer for answers without ids, whose rows are then marked inexact.
    """

    upstream: Address
    host: str
    port: int
    out: Path
    access: Access = field(default_factory=Access)
    sample: float = 1.0
    seed: int = 0
    max_requests: int | None = None
    duration_s: float | None = None
    asked: Asked | None = None
    rewrite_host: bool = False
    ends: bool = False
    drain_s: float = DRAIN_S
    queue_bytes: int = QUEUE_BYTES
    tokenizer: Path | None = None


@dataclass(slots=True)
class Recording:
    """How a recording stands, as the recorder tells it.

    Attributes:
        seen: completion requests that ended.
        sampled_out: of them, those that the sample leaves out.
        recorded: of them, those in the trace.
        rows: rows in the trace; a request with several choices has several.
        cut: rows whose answer was cut off by the client or the server; the ids up to there are exact.
        prompt_tokens: tokens of the recorded prompts.
        output_tokens: tokens of the recorded answers.
        inexact: rows whose ids were made from text.
        left_out: reason to how many requests.
        lost: how often bytes of a connection could not be copied in time.
        stopped: why nothing is recorded any more, though traffic is passed on; None while all is well.
        finished: whether the trace is closed.
    """

    seen: int = 0
    sampled_out: int = 0
    recorded: int = 0
    rows: int = 0
    cut: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    inexact: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    stopped: str | None = None
    finished: bool = False

    def leave_out(self, reason: str) -> None:
        """Count a request that is not in the trace."""
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def is_sampled(share: float, seed: int, connection: int, number: int) -> bool:
    """Whether a request is recorded: the same answer in both processes.

    Args:
        share: of the requests, 0 to 1.
        seed: decides which.
        connection: the connection's number.
        number: the request's on its connection, from 0.
    """
    if share >= 1:
        return True
    digest = blake2b(struct.pack("<qII", seed, connection, number), digest_size=8).digest()
    return int.from_bytes(digest, "little") < share * 2**64


def is_completion(method: bytes, target: bytes) -> bool:
    """Whether a request asks for something that is recorded."""
    path = target.partition(b"?")[0]
    return method == b"POST" and any(path.endswith(known) for known in COMPLETION_PATHS)
