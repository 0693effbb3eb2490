"""Writing commands and variables so that systemd reads back exactly what was meant (systemd.syntax(7))."""

import re
from collections.abc import Sequence

from draftworth.errors import UsageError

_PREFIXES = {
    "ignore-failure": "-",
    "no-env-expand": ":",
    "privileged": "+",
    "no-setuid": "!",
    "ambient": "!!",
}
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,+@^~-]+")  # a word that needs no quotes
_PREFIX_CHARS = "-@:+!|"
_UNSAFE = re.compile(r"""["'\\\x00-\x1f\x7f]""")  # what systemd refuses in a program's path
_NAMED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_LONGEST_LINE = 2**20 - 4096  # systemd refuses lines of 1 MiB; the name of the setting stands in front
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def exec_line(argv: Sequence[str], *, path: str | None = None, flags: Sequence[str] = (), expand: bool = False) -> str:
    """Return the text behind `ExecStart=` that systemd reads back to exactly this command.

    A `$` stays as it is: words that D-Bus gives are not yet expanded, and shall be expanded as before. A word of our
    own goes through `literal` first.

    Args:
        argv: the words as D-Bus gives them.
        path: the program, where it is not argv[0] (written with `@`).
        flags: systemd's names of the prefixes, as in `ExecCommand.flags`.
        expand: leave `%` alone, so that systemd expands specifiers in the words.

    Raises:
        UsageError: systemd cannot represent it: no words, a NUL, text that is not UTF-8, a Unicode noncharacter, a
            flag this version does not know, a line of 1 MiB.
    """
    if not argv:
        raise UsageError("a command without words cannot be written as ExecStart=")
    unknown = sorted(set(flags) - _PREFIXES.keys())
    if unknown:
        raise UsageError(f"cannot write a command with the flag {', '.join(unknown)}: Draftworth does not know it")
    program = argv[0] if path is None else path
    if not program or program[0] in _PREFIX_CHARS:
        raise UsageError(f"{program!r} cannot be the program of ExecStart=: give its absolute path")
    if _UNSAFE.search(program):
        raise UsageError(f"{program!r} cannot be a program of systemd's: no quote, backslash or control byte there")
    other_name = argv[0] != program
    prefix = "".join(sign for name, sign in _PREFIXES.items() if name in flags) + ("@" if other_name else "")
    words = [program, *argv] if other_name else list(argv)
    # The prefix belongs to the first word and may stand inside its quotes.
    line = " ".join(_word(word, expand, prefix if at == 0 else "") for at, word in enumerate(words))
    if len(line.encode()) > _LONGEST_LINE:
        raise UsageError(f"a command of {len(line.encode())} bytes is too long for a unit file (1 MiB a line)")
    return line


def literal(word: str, flags: Sequence[str] = ()) -> str:
    """Return a word whose `$` reaches the process as written.

    Args:
        word: what the process shall get.
        flags: of the command it stands in; with `no-env-expand` systemd expands nothing.
    """
    return word if "no-env-expand" in flags else word.replace("$", "$$")


def environment_line(name: str, value: str) -> str:
    """Return the text behind `Environment=` that sets one variable to exactly this value.

    Raises:
        UsageError: systemd cannot represent it: not a variable's name, a NUL, text that is not UTF-8, a Unicode
            noncharacter, a line of 1 MiB.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of an environment variable")
    line = _quoted(f"{name}={value}", expand=False)
    if len(line.encode()) > _LONGEST_LINE:
        raise UsageError(f"the variable {name} is too long for a unit file (1 MiB a line)")
    return line


def _word(word: str, expand: bool, prefix: str) -> str:  # noqa: FBT001 - one caller
    if _PLAIN.fullmatch(word):
        return prefix + word
    return _quoted(prefix + word, expand=expand)


def _quoted(word: str, *, expand: bool) -> str:
    out = []
    for char in word:
        code = ord(char)
        if code == 0:
            raise UsageError("a word with a NUL byte cannot be written into a unit file")
        if 0xD800 <= code <= 0xDFFF:  # noqa: PLR2004 - surrogates: bytes that are not UTF-8
            raise UsageError("a word that is not UTF-8 cannot be written into a unit file")
        if 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE:  # noqa: PLR2004 - systemd takes them for bad UTF-8
            raise UsageError(f"a word with the noncharacter U+{code:04X} cannot be written into a unit file")
        if char in _NAMED:
            out.append(_NAMED[char])
        elif code < 0x20 or code == 0x7F:  # noqa: PLR2004 - ASCII's control bytes
            out.append(f"\\x{code:02x}")
        elif char == "%" and not expand:
            out.append("%%")
        else:
            out.append(char)
    return f'"{"".join(out)}"'
