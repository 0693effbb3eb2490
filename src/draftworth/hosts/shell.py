"""What an SSH server's login shell is told, so that one command runs exactly as given and its end can be told apart.

`ssh` joins its words with blanks and the far login shell splits them again, so every word is quoted. The command is run
by `sh` behind two marks: standard output begins with one, so that what a login file prints is no part of the output;
and an exit code of 255, which `ssh` also uses for its own failures, is confirmed by one at the end of standard error.
"""

import re
from collections.abc import Sequence

from draftworth.hosts.base import STABLE_TEXTS

SSH_FAILED = 255
"""The exit code that the ssh client gives for a failure of its own."""

_RUN = 'm=$1; shift; printf "%s\\n" "$m"; "$@"; c=$?; [ "$c" = 255 ] && printf "\\n%s\\n" "$m" >&2; exit "$c"'
# The far command and its children are ended when standard input ends, which it does also when the connection is lost:
# without that, a command that waits in silence would stay for ever. `setsid` makes it the leader of a group.
_FOLLOW = """m=$1
shift
printf "%s\\n" "$m"
exec 3<&0
setsid "$@" </dev/null 3<&- & p=$!
{ while read -r l; do :; done; kill -s TERM -- "-$p" || kill "$p"; } <&3 >/dev/null 2>&1 & w=$!
exec 3<&-
wait "$p"; c=$?
kill "$w" 2>/dev/null
[ "$c" = 255 ] && printf "\\n%s\\n" "$m" >&2
exit "$c"
"""
_PLAIN = re.compile(r"[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+=:,./-]*")


def quote(word: str) -> str:
    """Return a word as a POSIX shell must read it to get exactly that word.

    Raises:
        ValueError: it has a NUL byte, which no command can be given.
    """
    if "\0" in word:
        raise ValueError("embedded null byte")
    if _PLAIN.fullmatch(word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def line(argv: Sequence[str], mark: str, *, follow: bool = False) -> str:
    """Return the text for the far login shell.

    Args:
        argv: the command.
        mark: a word that its output does not have by chance.
        follow: whether the command reads nothing and ends when standard input does.

    Raises:
        ValueError: a word cannot be given to a command.
    """
    variables = [f"{name}={value}" for name, value in STABLE_TEXTS.items()]
    words = ["exec", "env", *variables, "sh", "-c", _FOLLOW if follow else _RUN, "sh", mark, *argv]
    return " ".join(map(quote, words))


def without_marks(out: bytes, err: bytes, code: int, mark: str) -> tuple[bytes, bytes, bool, bool]:
    """Return standard output and error without the marks, whether the command began, and whether the code is its own.

    Args:
        out: standard output as it came.
        err: standard error as it came.
        code: the ssh client's exit code.
        mark: the word given to `line`.
    """
    sign = mark.encode() + b"\n"
    before, began, rest = out.partition(sign)
    confirmed = err.endswith(b"\n" + sign)
    if confirmed:
        err = err.removesuffix(b"\n" + sign)
    return (rest if began else before), err, bool(began), code != SSH_FAILED or confirmed
