"""Requests that ask for token ids: fields put into JSON bodies as they pass, without holding a body back.

The number of bytes added is the same whatever the body holds, so the new Content-Length is known with the head. The
fields go in front of the object's last brace. Where they must not (the client names them itself, or asks for `echo`,
which vLLM answers without the prompt's text when ids are asked for), as many spaces follow the body instead, which
JSON does not mind. At most the last 256 bytes of a body wait, until its end is there.
"""

from collections.abc import Callable

from draftworth.traces.proxy.base import Asked, is_completion

_HEAD_END = b"\r\n\r\n"
_LONGEST_HEAD = 2**16
_HELD = 256
_SPACE = b" \t\r\n"
_TWO = 2
_ECHO = b'"echo"'


class Asker:
    """Rewrites the requests of one connection.

    Attributes:
        begun: how many requests have begun.
        given_up: whether the rest of the connection is passed on as it is: after an upgrade, or bytes that are no HTTP.
    """

    def __init__(
        self, asked: Asked | None, is_taken: Callable[[int], bool], *, host: bytes | None, left: Callable[[str], None]
    ) -> None:
        """Make one.

        Args:
            asked: the fields; None for none.
            is_taken: whether the request of a number, from 0, is to be asked for ids.
            host: what the Host header is set to; None leaves it.
            left: takes the reason where a request could not be given the fields.
        """
        self.begun = 0
        self.given_up = False
        self._asked = asked
        self._is_taken = is_taken
        self._host = host
        self._left = left
        self._head = bytearray()
        self._chunks: _Chunks | None = None
        self._rest = 0  # bytes of the body that have not come
        self._fields = b""
        self._names: tuple[bytes, ...] = ()
        self._held = b""
        self._before = b""
        self._found: set[bytes] = set()

    def feed(self, data: bytes) -> bytes:
        """Take bytes in any pieces and return what is passed on for them."""
        if self.given_up:
            return data
        out: list[bytes] = []
        while data and not self.given_up:
            if self._chunks is not None:
                data = self._chunked(data, out)
            elif self._rest:
                data = self._body(data, out)
            else:
                data = self._heading(data, out)
        out.append(data)
        return b"".join(out)

    # Heads.

    def _heading(self, data: bytes, out: list[bytes]) -> bytes:
        searched = max(0, len(self._head) - len(_HEAD_END) + 1)
        self._head += data
        end = self._head.find(_HEAD_END, searched)
        if end < 0:
            if len(self._head) > _LONGEST_HEAD:
                self._give_up(out)
            return b""
        head, rest = bytes(self._head[:end]), bytes(self._head[end + len(_HEAD_END) :])
        self._head.clear()
        empty = len(head) - len(head.lstrip(b"\r\n"))  # line ends between requests are allowed
        out.append(head[:empty])
        self._request(head[empty:], out)
        return rest

    def _give_up(self, out: list[bytes]) -> None:
        out.append(bytes(self._head))
        self._head.clear()
        self.given_up = True

    def _request(self, head: bytes, out: list[bytes]) -> None:
        """Take the head of a request, without the empty line behind it."""
        first, *lines = head.split(b"\r\n")
        words = first.split(b" ")
        headers: dict[bytes, list[bytes]] = {}
        for line in lines:
            name, _, value = line.partition(b":")
            headers.setdefault(name.lower(), []).append(value.strip())
        number, self.begun = self.begun, self.begun + 1
        lengths = headers.get(b"content-length", [])
        chunked = b"transfer-encoding" in headers
        known = len(words) == _TWO + 1 and len(lengths) <= 1 and all(one.isdigit() for one in lengths)
        # A POST that offers HTTP/2, as Java's client does, is answered in HTTP/1.1 by every engine.
        switches = words[0] == b"CONNECT" or (b"upgrade" in headers and words[0] != b"POST")
        if not known or switches or (chunked and lengths):
            out.append(head + _HEAD_END)
            self.given_up = True
            return
        self._rest = int(lengths[0]) if lengths else 0
        self._fields = b""
        if self._asked is not None and is_completion(words[0], words[1]) and self._is_taken(number):
            self._prepare(words[1], headers, chunked=chunked)
        if chunked:
            self._chunks = _Chunks()
        if self._fields or self._host is not None:
            lines = [self._line(line) for line in lines]
        out.append(b"\r\n".join((first, *lines)) + _HEAD_END)

    def _prepare(self, target: bytes, headers: dict[bytes, list[bytes]], *, chunked: bool) -> None:
        kind = b",".join(headers.get(b"content-type", [])).lower()
        if chunked:
            self._left("its body has no Content-Length")
        elif b"content-encoding" in headers or (b"charset" in kind and b"utf-8" not in kind):
            self._left("its body is encoded")
        elif self._rest and self._asked is not None:
            is_chat = target.partition(b"?")[0].endswith(b"/chat/completions")
            self._fields = self._asked.chat if is_chat else self._asked.plain
            self._names = (_ECHO, *(part.partition(b":")[0] for part in self._fields.split(b",") if part))
            self._held = self._before = b""
            self._found = set()

    def _line(self, line: bytes) -> bytes:
        name = line.partition(b":")[0]
        if self._fields and name.lower() == b"content-length":
            return b"%s: %d" % (name, self._rest + len(self._fields))
        if self._host is not None and name.lower() == b"host":
            return b"%s: %s" % (name, self._host)
        return line

    # Bodies.

    def _body(self, data: bytes, out: list[bytes]) -> bytes:
        body, rest = data[: self._rest], data[self._rest :]
        self._rest -= len(body)
        if not self._fields:
            out.append(body)
            return rest
        # A name may be cut in two by the pieces it comes in.
        seen = self._before + body
        self._found.update(name for name in self._names if name in seen)
        self._before = seen[-max(map(len, self._names)) :]
        body = self._held + body
        if self._rest:
            out.append(body[:-_HELD])
            self._held = body[-_HELD:]
            return rest
        out.append(self._ended(body))
        self._fields = self._held = self._before = b""
        return rest

    def _ended(self, end: bytes) -> bytes:
        """Return the end of a body with the fields in it, or with spaces behind it."""
        brace = len(end.rstrip(_SPACE)) - 1
        inside = end[: max(brace, 0)].rstrip(_SPACE)
        if self._found or end[brace : brace + 1] != b"}" or not inside or inside.endswith((b"{", b",")):
            if self._found == {_ECHO}:
                self._left("it asks for echo")
            return end + b" " * len(self._fields)
        return end[:brace] + self._fields + end[brace:]

    def _chunked(self, data: bytes, out: list[bytes]) -> bytes:
        """Follow a body in chunks to its end; it is passed on as it is."""
        assert self._chunks is not None
        taken = self._chunks.feed(data)
        if taken is None:
            out.append(data)
            self.given_up = True
            return b""
        out.append(data[:taken])
        if self._chunks.done:
            self._chunks = None
        return data[taken:]


class _Chunks:
    """Finds the end of a chunked body.

    Attributes:
        done: whether it is there.
    """

    def __init__(self) -> None:
        self.done = False
        self._skip = 0
        self._line = b""
        self._trailer = False

    def feed(self, data: bytes) -> int | None:
        """Return how many of the bytes belong to the body; None where it is no chunked body."""
        at = 0
        while at < len(data) and not self.done:
            if self._skip:
                step = min(self._skip, len(data) - at)
                self._skip -= step
                at += step
                continue
            end = data.find(b"\n", at)
            stop = len(data) if end < 0 else end + 1
            self._line += data[at:stop]
            at = stop
            if len(self._line) > _LONGEST_HEAD:
                return None
            if end >= 0 and not self._take(self._line.strip()):
                return None
        return at

    def _take(self, line: bytes) -> bool:
        """Take a line of the framing; whether it is one."""
        self._line = b""
        if self._trailer:
            self.done = not line
            return True
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            return False
        self._trailer = size == 0
        self._skip = size + len(b"\r\n") if size else 0
        return size >= 0
