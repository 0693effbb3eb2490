import shlex
from collections.abc import Sequence

import pytest

from draftworth.engines.layout import Place, find, until_dashes
from draftworth.engines.placing import PLACEHOLDER, Placing
from draftworth.errors import RefusedError


def locate(words: Sequence[str]) -> Place | None:
    return find(words, lambda words, i, name: until_dashes(words, i + 1, i) if name == "serve-it" else None)


PLACING = Placing(engine="It", program="serve-it", server="It's server", locate=locate, ends_at_dashes=True)
NEW = ("--x", "a b")
NESTED = shlex.quote("serve-it m --x 'a b'")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["serve-it", "m", "--", "y"], ["serve-it", "m", "--x", "a b", "--", "y"]),
        (["bash", "-c", "cd /x; serve-it m >log"], ["bash", "-c", "cd /x; serve-it m --x 'a b' >log"]),
        (["sh", "-c", "bash -c 'serve-it m'"], ["sh", "-c", f"bash -c {NESTED}"]),
        (["start", PLACEHOLDER, "y"], ["start", "--x", "a b", "y"]),
        (["bash", "-c", f"serve-it {PLACEHOLDER} m"], ["bash", "-c", "serve-it --x 'a b' m"]),
    ],
)
def test_flags_go_where_the_command_carries_them(command: list[str], expected: list[str]) -> None:
    assert list(PLACING.with_speculation(command, NEW, None)) == expected


def test_further_arguments_leave_the_placeholder_and_it_can_be_taken_out() -> None:
    command = ["bash", "-c", f"serve-it m {PLACEHOLDER}"]
    assert PLACING.with_args(command, []) == tuple(command)
    added = PLACING.with_args(command, NEW)
    assert added == ("bash", "-c", f"serve-it m --x 'a b' {PLACEHOLDER}")
    assert PLACING.without_placeholder(added) == ("bash", "-c", "serve-it m --x 'a b' ")
    assert PLACING.without_placeholder(["serve-it"]) == ("serve-it",)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ["start.sh"],
            "cannot add flags to the command `start.sh`: it does not show where It's arguments go; put the ",
        ),
        (["bash", "-c", "start.sh"], "it does not show where It's arguments go"),
        (["bash", "-c", "serve-it a; serve-it b"], "it starts It's server in 2 places"),
        (["bash", "-c", "serve-it 'a"], "its shell string has a ' that is not closed, which this tool does not read"),
        (["sh", "-c", 'bash -c "serve-it $M"'], "it holds a shell string in double quotes with a $ in it"),
        (["bash", "-c", 'serve-it "$@"', "x", "--", "y"], "a `--` hides in its $@"),
        (["start", f"x{PLACEHOLDER}"], "must stand as a word of its own, outside quotes"),
        (["bash", "-c", f"serve-it '{PLACEHOLDER} a'"], "must stand as a word of its own, outside quotes"),
    ],
)
def test_what_cannot_be_told_is_refused_with_its_reason(command: list[str], message: str) -> None:
    with pytest.raises(RefusedError) as raised:
        PLACING.with_args(command, NEW)
    assert message in str(raised.value)


def test_a_command_that_speculates_already_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"speculates already \(--spec y\); take that out of service\.command"):
        PLACING.with_speculation(["serve-it"], NEW, "--spec y")


def test_arguments_that_end_at_no_dashes_hide_none() -> None:
    placing = Placing(engine="It", program="serve-it", server="It", locate=locate, ends_at_dashes=False)
    command = ("bash", "-c", 'serve-it "$@"', "x", "--", "y")
    assert placing.with_args(command, NEW) == ("bash", "-c", "serve-it \"$@\" --x 'a b'", "x", "--", "y")


def test_a_long_command_is_cut_in_the_message() -> None:
    with pytest.raises(RefusedError, match=r"`a{160}…`: "):
        PLACING.with_args(["a" * 161], NEW)
