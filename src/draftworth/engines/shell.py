"""Reads a shell string just far enough to know its simple commands and where each word lies in it.

The grammar is the one bash and POSIX sh share: quoting, expansions, control operators, redirections and comments
(POSIX.1-2017, XCU chapter 2). Nothing is expanded or run.
"""

import re
from dataclasses import dataclass

_CONTROL = frozenset({"\n", ";", "&", "|", "(", ")", "&&", "||", "|&", ";;", ";&", ";;&"})
_HERE_DOCUMENT = frozenset({"<<", "<<-"})
_OPERATOR = re.compile(r"&>>|<<<|<<-|;;&|&&|\|\||\|&|;;|;&|&>|>>|>&|>\||<<|<&|<>|[\n;&|()<>]")
_PROCESS_SUBSTITUTION = re.compile(r"[<>]\(")
_FILE_DESCRIPTOR = re.compile(r"\d+")


class ShellSyntaxError(ValueError):
    """The string cannot be read: an open quote, or a here-document."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a simple command.

    Attributes:
        text: after quote removal; expansions such as `$HOME` stay as written.
        raw: as written, quotes and all.
        start: where it begins in the string.
        end: just behind its last character.
        expands: it holds an expansion, so its value is known only when it runs.
    """

    text: str
    raw: str
    start: int
    end: int
    expands: bool


def simple_commands(text: str) -> list[list[Word]]:
    """Return the words of every simple command of a shell string, redirections and comments left out.

    Leading assignments, `exec` and reserved words such as `then` count as words of their command.

    Raises:
        ShellSyntaxError: a quote or an expansion is not closed, or there is a here-document.
    """
    return _Scanner(text).commands()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def commands(self) -> list[list[Word]]:
        found: list[list[Word]] = [[]]
        while self._next():
            operator = self._operator()
            if operator is None:
                word = self._word()
                if not self._numbers_a_redirection(word):
                    found[-1].append(word)
            elif operator in _CONTROL:
                found.append([])
            elif operator in _HERE_DOCUMENT:
                raise ShellSyntaxError("a here-document")
            elif self._next() and self._operator(peek=True) is None:
                self._word()  # where the redirection leads
        return [words for words in found if words]

    def _next(self) -> bool:
        """Move to the next token; False at the end."""
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return True
        return False

    def _operator(self, *, peek: bool = False) -> str | None:
        if _PROCESS_SUBSTITUTION.match(self.text, self.at):
            return None
        match = _OPERATOR.match(self.text, self.at)
        if match and not peek:
            self.at = match.end()
        return match[0] if match else None

    def _numbers_a_redirection(self, word: Word) -> bool:
        """Whether the word is the 2 of `2>file`."""
        return bool(_FILE_DESCRIPTOR.fullmatch(word.raw)) and self.text[self.at : self.at + 1] in ("<", ">")

    def _word(self) -> Word:
        start = self.at
        parts: list[str] = []
        expands = False
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t" or (self._operator(peek=True) is not None):
                break
            if char == "\\":
                parts.append(self._escaped())
            elif char == "'":
                parts.append(self._until("'")[1:-1])
            elif char == '"':
                inside, inner = self._double_quoted()
                parts.append(inside)
                expands |= inner
            elif char in "$`<>":
                expands = True
                parts.append(self._expansion())
            else:
                parts.append(char)
                self.at += 1
        return Word("".join(parts), self.text[start : self.at], start, self.at, expands)

    def _escaped(self) -> str:
        kept = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        return "" if kept == "\n" else kept

    def _until(self, quote: str) -> str:
        """Take a quoted stretch, both quotes included; a backslash hides a quote unless the quote is single."""
        start = self.at
        self.at += 1
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 2 if char == "\\" and quote != "'" else 1
            if char == quote:
                return self.text[start : self.at]
        raise ShellSyntaxError(f"a {quote} that is not closed")

    def _double_quoted(self) -> tuple[str, bool]:
        parts: list[str] = []
        expands = False
        self.at += 1
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"':
                self.at += 1
                return "".join(parts), expands
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in tuple('$`"\\\n'):
                parts.append(self._escaped())
            elif char in "$`":
                expands = True
                parts.append(self._expansion(quoted=True))
            else:
                parts.append(char)
                self.at += 1
        raise ShellSyntaxError('a " that is not closed')

    def _expansion(self, *, quoted: bool = False) -> str:
        """Take `$name`, `${…}`, `$(…)`, `` `…` ``, `<(…)` or `$'…'` as written."""
        start = self.at
        if self.text[self.at] == "`":
            return self._until("`")
        self.at += 1
        opening = self.text[self.at : self.at + 1]
        if opening in ("(", "{"):
            self._balanced(opening, {"(": ")", "{": "}"}[opening])
        elif opening == "'" and not quoted:
            self._ansi_c_quoted()
        return self.text[start : self.at]

    def _ansi_c_quoted(self) -> None:
        self.at += 1
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 2 if char == "\\" else 1
            if char == "'":
                return
        raise ShellSyntaxError("a $' that is not closed")

    def _balanced(self, opening: str, closing: str) -> None:
        depth = 0
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in "'\"`":
                self._until(char)
                continue
            self.at += 2 if char == "\\" else 1
            depth += (char == opening) - (char == closing)
            if depth == 0:
                return
        raise ShellSyntaxError(f"a ${opening} that is not closed")
