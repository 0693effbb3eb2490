from collections.abc import Sequence

import pytest

from draftworth.engines.layout import Place, find, own_words, until_dashes, value_of


def named(words: Sequence[str], index: int, program: str) -> Place | None:
    return until_dashes(words, index + 1, index) if program == "serve-it" else None


def locate(words: Sequence[str]) -> Place | None:
    return find(words, named, modules={"it.server"}, serving={"it"})


@pytest.mark.parametrize(
    ("command", "own"),
    [
        (["serve-it", "a", "b"], [["a", "b"]]),
        (["nohup", "nice", "-n", "5", "A=serve-it", "/opt/serve-it", "a", "--", "b"], [["a"]]),
        (["python3", "-u", "-m", "it.server", "a"], [["a"]]),
        (["python3", "-mit.server", "a"], [["a"]]),
        (["python3", "-m", "it", "serve", "a"], [["a"]]),
        (["python3", "-m", "it", "other", "a"], []),
        (["bash", "-euo", "pipefail", "-c", "cd /x && exec serve-it 'a b' >log", "serve-it"], [["a b"]]),
        (["sh", "-c", "bash -lc 'serve-it a; serve-it b'"], [["a"], ["b"]]),
        (["su", "user", "-c", "serve-it a"], [["a"]]),
        (["bash", "-c", "serve-it 'a"], []),
        (["docker", "run", "--rm", "image", "serve-it", "a"], [["a"]]),
        (["docker", "start", "serve-it"], []),
        (["ssh", "host", "serve-it", "a"], []),
        (["bash", "serve-it"], [[]]),
        ([], []),
    ],
)
def test_a_servers_own_words_are_found_whatever_stands_in_front(command: list[str], own: list[list[str]]) -> None:
    assert [list(words) for words in own_words(command, locate)] == own


def test_a_place_says_which_word_starts_the_server() -> None:
    assert locate(["env", "serve-it", "a", "--", "b"]) == Place(2, 3, program=1)
    assert locate(["env", "bash", "-c", "serve-it a", "x"]) == Place(3, 4, script=True, program=1)


def test_an_engine_may_say_itself_what_a_container_runs() -> None:
    command = ["docker", "compose", "serve-it", "a"]
    assert locate(command) is None
    assert find(command, named, runs=lambda _words, _index: True) == Place(3, 4, program=2)


def test_the_first_value_of_an_option_counts() -> None:
    words = ["--a", "1", "--b=2", "--a=3", "--c"]
    assert value_of(words, ("--a",)) == "1"
    assert value_of(words, ("--x", "--b")) == "2"
    assert value_of(words, ("--c",)) == ""
    assert value_of(words, ("--x",)) is None
