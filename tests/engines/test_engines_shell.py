import shlex
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.engines.shell import ShellSyntaxError, simple_commands


def texts(script: str) -> list[list[str]]:
    return [[word.text for word in command] for command in simple_commands(script)]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a b", [["a", "b"]]),
        ("a; b && c || d | e & f\ng", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"], ["g"]]),
        ("a >log 2>&1 <in >>x &>y b", [["a", "b"]]),
        ("a 2 >log", [["a", "2"]]),
        ("a 2>log", [["a"]]),
        ("a # comment; b\nc", [["a"], ["c"]]),
        ("a#b", [["a#b"]]),
        ("a \\\n  b", [["a", "b"]]),
        (r"'x y'\ z\"\'w\"", [['x y z"\'w"']]),
        ('"a $HOME \\" \\x" b', [['a $HOME " \\x', "b"]]),
        ('cd "$(dirname "$0")" && go', [["cd", '$(dirname "$0")'], ["go"]]),
        ("${A:-x y} `b c` $(d; e)", [["${A:-x y}", "`b c`", "$(d; e)"]]),
        ("(cd x; y)", [["cd", "x"], ["y"]]),
        ("if a; then b; fi", [["if", "a"], ["then", "b"], ["fi"]]),
        ("diff <(a b) c", [["diff", "<(a b)", "c"]]),
        ("a <<<word b", [["a", "b"]]),
        ("a $'x\\'y' b", [["a", "$'x\\'y'", "b"]]),
        ("", []),
    ],
)
def test_a_script_falls_into_the_simple_commands_a_shell_would_run(script: str, expected: list[list[str]]) -> None:
    assert texts(script) == expected


@pytest.mark.parametrize(
    "script", ["a 'b", 'a "b', "a $(b", "a `b", "cat <<EOF\nx\nEOF", "a ${b", "a $'b", "a 'b\\'c'"]
)
def test_what_cannot_be_read_is_an_error(script: str) -> None:
    with pytest.raises(ShellSyntaxError):
        simple_commands(script)


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=6))
def test_words_quoted_for_a_shell_come_back_as_they_were(words: list[str]) -> None:
    script = " ".join(map(shlex.quote, words))
    assert texts(script) == [words]
    assert not any(word.expands for command in simple_commands(script) for word in command)


@given(st.text(alphabet=string.printable, max_size=60))
def test_any_text_is_read_or_refused_and_spans_point_at_the_words(script: str) -> None:
    try:
        commands = simple_commands(script)
    except ShellSyntaxError:
        return
    for command in commands:
        for word in command:
            assert script[word.start : word.end] == word.raw
