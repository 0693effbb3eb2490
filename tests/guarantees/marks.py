"""Which test shows which failure or guarantee: marks beside the tests, read from their text.

    @failure(17, produced="KillMode=process, a child that stays", outcome="it is ended, and named in the record")
    def test_a_child_that_stays_is_ended(...): ...

The decorators change nothing about a test. They are found by reading the files, so that a list of them needs no import
and no run; their arguments are therefore literals.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

Test = TypeVar("Test", bound=Callable[..., None])
How = Literal["real systemd", "real processes", "real SSH client", "recorded", "fake"]

TESTS = Path(__file__).parents[1]


def failure(number: int, *, produced: str, outcome: str, how: How = "real systemd") -> Callable[[Test], Test]:
    """Mark a test as showing what happens in a failure of the list in `failures.py`.

    Args:
        number: of the failure.
        produced: how the test makes it happen.
        outcome: what then happens, which the test checks.
        how: what it happens to.
    """
    assert number, produced
    assert outcome, how
    return lambda test: test


def shows(guarantee: str, what: str) -> Callable[[Test], Test]:
    """Mark a test as showing a guarantee.

    Args:
        guarantee: its number, such as G3.
        what: which part of it, and how.
    """
    assert guarantee, what
    return lambda test: test


@dataclass(frozen=True, slots=True)
class Shown:
    """A test that shows a failure.

    Attributes:
        number: of the failure.
        test: `path::name`, the path below the project's folder.
        produced: how it is made to happen.
        outcome: what happens.
        how: what it happens to.
    """

    number: int
    test: str
    produced: str
    outcome: str
    how: str = "real systemd"


@dataclass(frozen=True, slots=True)
class Held:
    """A test that shows a guarantee.

    Attributes:
        guarantee: its number, such as G3.
        test: `path::name`.
        what: which part of it, and how.
    """

    guarantee: str
    test: str
    what: str


def marked(folder: Path = TESTS) -> tuple[list[Shown], list[Held]]:
    """Return what the tests below a folder are marked with, in the order of files and lines."""
    failures: list[Shown] = []
    guarantees: list[Held] = []
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "tests.guarantees.marks" not in text:
            continue
        for test in functions(text):
            name = f"{path.relative_to(folder.parent)}::{test.name}"
            for call in _calls(test):
                if _called(call) == "failure":
                    failures.append(_shown(call, name))
                elif _called(call) == "shows":
                    guarantee, what = (str(ast.literal_eval(one)) for one in call.args)
                    guarantees.append(Held(guarantee, name, what))
    return failures, guarantees


def functions(text: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the test functions of a file's text."""
    tree = ast.parse(text)
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [node for node in found if node.name.startswith("test_")]


def _calls(test: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.Call]:
    return [one for one in test.decorator_list if isinstance(one, ast.Call)]


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _shown(call: ast.Call, name: str) -> Shown:
    words = {str(one.arg): str(ast.literal_eval(one.value)) for one in call.keywords}
    return Shown(int(ast.literal_eval(call.args[0])), name, **words)
