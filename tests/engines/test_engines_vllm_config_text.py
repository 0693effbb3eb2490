from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.engines.vllm.config_text import flat


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1, b='x, c=2', d=[1, 2]", {"a": "1", "b": "x, c=2", "d": "[1, 2]"}),
        ("a=X(b=1, c=Y(d='e'))", {"a.b": "1", "a.c.d": "e"}),
        ("a={'mode': <CompilationMode.FAST: 2>, 't': <T.B: 'b, c'>}", {"a.mode": "FAST", "a.t": "B"}),
        ("a={}, b=X(), c=[], d=PosixPath('/x')", {"a": "{}", "b": "X()", "c": "[]", "d": "PosixPath('/x')"}),
        ("a={'cpp.dynamic_threads': True}", {"a.cpp.dynamic_threads": "True"}),
        ("a=[{'b': 1}, {'c': 2}], d=torch.bfloat16", {"a": "[{'b': 1}, {'c': 2}]", "d": "torch.bfloat16"}),
        ("f=<function g.<locals>.h at 0x7f12>, a=1", {"f": "<function g.<locals>.h>", "a": "1"}),
        ("a=it's, b=2", {"a": "it's", "b": "2"}),
        ("a='open, b=2", {"a": "'open", "b": "2"}),
        ("a=(1, 2), b={1: 2}", {"a": "(1, 2)", "b.1": "2"}),
        ("{'a': {'b': None}, 'c': 'x: y, z'}", {"a.b": "None", "c": "x: y, z"}),
    ],
)
def test_printed_configurations_become_flat(text: str, expected: dict[str, str]) -> None:
    assert flat(text) == expected


def test_a_prefix_goes_in_front_and_an_object_at_the_top_is_opened() -> None:
    assert flat("Namespace(a=1, b={'c': 2})", "args") == {"args.a": "1", "args.b.c": "2"}
    assert flat("{}", "args") == {"args": "{}"}


SCALARS = st.none() | st.booleans() | st.integers() | st.text("ab ,:={}()[]<>.-", max_size=12)
VALUES = st.recursive(
    SCALARS | st.lists(st.integers(), max_size=3),
    lambda v: st.dictionaries(st.from_regex(r"[a-z_]{1,6}", fullmatch=True), v, max_size=3),
    max_leaves=12,
)


def naive(key: str, value: Any) -> dict[str, str]:
    if isinstance(value, dict) and value:
        return {k: v for name, inner in value.items() for k, v in naive(f"{key}.{name}", inner).items()}
    return {key: value if isinstance(value, str) else repr(value)}


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,6}", fullmatch=True), VALUES, min_size=1, max_size=4))
def test_reprs_of_nested_dictionaries_come_back_whole(config: dict[str, Any]) -> None:
    expected = {k: v for key, value in config.items() for k, v in naive(key, value).items()}
    assert flat(", ".join(f"{key}={value!r}" for key, value in config.items())) == expected


@given(st.text("ab=,: '\"(){}[]<>\\x1", max_size=60))
def test_any_text_gives_some_mapping(text: str) -> None:
    assert all(isinstance(value, str) for value in flat(text).values())


def test_deep_nesting_stays_text() -> None:
    deep = flat("a=" + "{'b': " * 500 + "1" + "}" * 500)
    assert list(deep) == ["a" + ".b" * 8]
