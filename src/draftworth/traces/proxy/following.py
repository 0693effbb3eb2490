"""Finds requests and their answers in copies of the bytes that go over a connection (HTTP/1.1, RFC 9112)."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import httptools

from draftworth.traces.proxy.answers import Answer
from draftworth.traces.proxy.base import is_completion

LARGEST_BODY = 256 * 2**20
LARGEST_HELD = 512 * 2**20
_INTERIM = range(100, 200)
_NO_BODY = (204, 304)
_HEAD_END = b"\r\n\r\n"
_SWITCHED = 101

TOO_LARGE = "too large to be kept until it ends"
NOT_FOLLOWED = "on a connection whose bytes are not read as HTTP/1.1"
ENCODED = "the request's body is compressed"
UNANSWERED = "cut off before the answer began"
MISSED = "the recorder could not keep up"


@dataclass(slots=True)
class Held:
    """Bytes of bodies that are kept, of all connections together."""

    size: int = 0


@dataclass(slots=True)
class Exchange:
    """A request and its answer.

    Attributes:
        connection: the connection's number.
        number: the request's on it, from 0.
        head: whether it is a HEAD request, whose answer has no body.
        wanted: whether it asks for a completion.
        request: pieces of its body, as far as it is wanted.
        answer: None before it began.
        whole: whether the answer is complete.
        why_not: why it cannot be recorded.
        held: bytes that are kept.
    """

    connection: int
    number: int
    head: bool = False
    wanted: bool = False
    request: list[bytes] = field(default_factory=list)
    answer: Answer | None = None
    whole: bool = False
    why_not: str | None = None
    held: int = 0


OnEnd = Callable[[Exchange], None]


class _Requests:
    """The parser's callbacks of one connection's requests."""

    def __init__(self, owner: "Following") -> None:
        self._owner = owner
        self._target = b""
        self._exchange: Exchange | None = None
        self._encoded = False
        self.length = 0
        self.parser = httptools.HttpRequestParser(self)

    def on_message_begin(self) -> None:
        self._target = b""
        self._encoded = False
        self.length = 0
        self._exchange = self._owner.begun()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # Nothing of a request's headers is kept: keys are among them.
        key = name.lower()
        self._encoded = self._encoded or (key == b"content-encoding" and value.lower() != b"identity")
        if key == b"content-length" and value.isdigit():
            self.length = int(value)

    def on_headers_complete(self) -> None:
        exchange = self._exchange
        assert exchange is not None
        method = self.parser.get_method()
        exchange.head = method == b"HEAD"
        exchange.wanted = is_completion(method, self._target) and self._owner.is_taken(exchange)
        if self._encoded:
            exchange.why_not = ENCODED

    def on_body(self, body: bytes) -> None:
        exchange = self._exchange
        if exchange is not None and exchange.wanted and exchange.why_not is None:
            exchange.request.append(body)
            self._owner.hold(exchange, len(body))


class _Answers:
    """The parser's callbacks of one connection's answers."""

    def __init__(self, owner: "Following") -> None:
        self._owner = owner
        self._headers: dict[str, str] = {}
        self.until_end = False
        self.parser = httptools.HttpResponseParser(self)

    def on_message_begin(self) -> None:
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        if status in _INTERIM:
            return
        framed = "content-length" in self._headers or "chunked" in self._headers.get("transfer-encoding", "").lower()
        self.until_end = not framed and status not in _NO_BODY
        self._owner.answered(Answer(status, self._headers))

    def on_body(self, body: bytes) -> None:
        exchange = self._owner.current
        if exchange is not None and exchange.wanted and exchange.answer is not None and exchange.why_not is None:
            self._owner.hold(exchange, exchange.answer.body(body))

    def on_message_complete(self) -> None:
        if self.parser.get_status_code() not in _INTERIM:
            self._owner.complete()


class Following:
    """Follows one connection.

    Attributes:
        number: its number.
        is_lost: whether bytes of it are missing, until a request begins anew.
    """

    def __init__(self, number: int, is_taken: Callable[[int, int], bool], on_end: OnEnd, held: Held) -> None:
        """Make one.

        Args:
            number: its number.
            is_taken: whether the request of a connection and a number is in the sample.
            on_end: takes each completion request that has ended.
            held: counts bytes that are kept.
        """
        self.number = number
        self.is_lost = False
        self._is_taken = is_taken
        self._on_end = on_end
        self._held = held
        self._count = 0
        self._waiting: deque[Exchange] = deque()
        self._blind = False
        self._skipping = False
        self._tail = b""
        self._owed = 0
        self._fresh()

    def _fresh(self) -> None:
        self._requests, self._answers = _Requests(self), _Answers(self)

    @property
    def current(self) -> Exchange | None:
        """The request whose answer is next."""
        return self._waiting[0] if self._waiting else None

    @property
    def idle(self) -> bool:
        """Whether no request is under way; a connection that cannot be followed may always have one."""
        return not self._waiting and not self._blind and not self.is_lost

    # Bytes.

    def request(self, data: bytes) -> None:
        """Take bytes of the client."""
        if self._blind or self.is_lost:
            return
        if self._owed:
            data = self._body(data)
        if not data:
            return
        try:
            self._requests.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            # The answer tells whether it is taken up. The parser has left the body to us.
            self._owed = self._requests.length
            self.request(data[offer.args[0] :])
        except httptools.HttpParserError:
            self._give_up()

    def _body(self, data: bytes) -> bytes:
        """Take the body of a request that offers an upgrade. Returns what is behind it."""
        body, rest = data[: self._owed], data[self._owed :]
        self._owed -= len(body)
        self._requests.on_body(body)
        if not self._owed:
            self._requests = _Requests(self)
        return rest

    def answer(self, data: bytes) -> None:
        """Take bytes of the server."""
        if self._blind or self.is_lost:
            return
        if self._skipping:  # behind a loss, the rest of an older answer
            if not data.startswith(b"HTTP/1."):
                return
            self._skipping = False
        exchange = self.current
        if exchange is not None and exchange.head:
            data = self._headless(exchange, data)
        if not data:
            return
        try:
            self._answers.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._give_up(quiet=True)
        except httptools.HttpParserError:
            self._give_up()

    def _headless(self, exchange: Exchange, data: bytes) -> bytes:
        """Take the head of an answer to HEAD, which says how long a body would be and has none."""
        head, end, rest = (self._tail + data).partition(_HEAD_END)
        self._tail = b"" if end else head
        if not end:
            return b""
        status = head.split(b" ", 2)[1:2]
        if not (status and status[0].isdigit() and int(status[0]) in _INTERIM):
            exchange.whole = True
            self.complete()
        return rest

    def client_end(self) -> None:
        """The client will send no more."""

    def server_end(self) -> None:
        """The server has sent everything."""
        if self._answers.until_end and self._waiting and self._waiting[0].answer is not None:
            self.complete()
        self.over()

    def over(self, why_not: str | None = None) -> None:
        """End everything that is under way."""
        while self._waiting:
            exchange = self._waiting.popleft()
            exchange.why_not = exchange.why_not or why_not
            if exchange.answer is None:
                exchange.why_not = exchange.why_not or UNANSWERED
            self._end(exchange)

    def lose(self) -> None:
        """Bytes are missing from here on."""
        self.over(MISSED)
        self.is_lost = True

    def again(self, number: int | None) -> None:
        """The next bytes of the client begin a request."""
        self.over(MISSED)
        self.is_lost = False
        self._count = self._count if number is None else number
        self._skipping = True
        self._owed = 0
        self._fresh()

    def _give_up(self, *, quiet: bool = False) -> None:
        """Follow no more of this connection."""
        self._blind = True
        self.over(None if quiet else NOT_FOLLOWED)

    # What the parsers find.

    def begun(self) -> Exchange:
        """A request begins."""
        exchange = Exchange(self.number, self._count)
        self._count += 1
        self._waiting.append(exchange)
        return exchange

    def is_taken(self, exchange: Exchange) -> bool:
        """Whether a completion request is in the sample."""
        return self._is_taken(self.number, exchange.number)

    def hold(self, exchange: Exchange, size: int) -> None:
        """Account for bytes that are kept."""
        exchange.held += size
        self._held.size += size
        if exchange.held > LARGEST_BODY or self._held.size > LARGEST_HELD:
            exchange.why_not = TOO_LARGE
            exchange.request.clear()
            self._held.size -= exchange.held
            exchange.held = 0

    def answered(self, answer: Answer) -> None:
        """The head of an answer has come."""
        if self._waiting:
            self._waiting[0].answer = answer

    def complete(self) -> None:
        """An answer is complete."""
        if self._waiting:
            exchange = self._waiting.popleft()
            exchange.whole = True
            self._end(exchange)

    def _end(self, exchange: Exchange) -> None:
        self._held.size -= exchange.held
        if exchange.wanted:
            self._on_end(exchange)
        exchange.request.clear()
