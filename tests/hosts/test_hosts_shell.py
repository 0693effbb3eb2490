import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from draftworth.hosts.shell import line, quote, without_marks

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
NASTY = st.one_of(WORDS, st.text("'\"\\$`!*?[]{}()<>|&;~# \n\t=%-", max_size=12))


@pytest.mark.parametrize("shell", ["sh", "bash"])
@settings(max_examples=60, deadline=None)
@given(st.lists(NASTY, max_size=8))
@example(["", " ", "\n", "'", "'\"'\"'", "$HOME", "`id`", "a\\", "-n", "~", "*", "A=b", "!!", "\u00fc\U0001f600", "\r"])
def test_words_arrive_exactly(shell: str, words: list[str]) -> None:
    text = line(["printf", r"%s\0", *words], "mark")
    done = subprocess.run([shell, "-c", text], capture_output=True, check=True)
    out, err, began, own = without_marks(done.stdout, done.stderr, done.returncode, "mark")
    expected = words or [""]  # printf without words prints its format once
    assert out == b"".join(word.encode() + b"\0" for word in expected)
    assert (err, began, own) == (b"", True, True)


def test_plain_words_stay_readable() -> None:
    assert quote("/usr/bin/systemctl") == "/usr/bin/systemctl"
    assert quote("--property=ExecStart") == "--property=ExecStart"
    assert quote("=x") == "'=x'"  # zsh would look for a command of that name
    assert quote("") == "''"
    with pytest.raises(ValueError, match="null byte"):
        quote("a\0b")


@pytest.mark.parametrize("code", [0, 1, 254, 255])
def test_a_commands_own_255_is_told_from_that_of_ssh(code: int) -> None:
    text = line(["sh", "-c", f"echo out; printf err >&2; exit {code}"], "mark")
    done = subprocess.run(["sh", "-c", text], capture_output=True, check=False)
    assert done.returncode == code
    assert without_marks(done.stdout, done.stderr, done.returncode, "mark") == (b"out\n", b"err", True, True)
    assert without_marks(b"", b"Connection refused", 255, "mark") == (b"", b"Connection refused", False, False)
    assert without_marks(b"mark\npart", b"", 255, "mark") == (b"part", b"", True, False)


def test_what_a_login_file_prints_is_no_output() -> None:
    assert without_marks(b"Welcome!\nmark\nmark\n", b"", 0, "mark") == (b"mark\n", b"", True, True)
