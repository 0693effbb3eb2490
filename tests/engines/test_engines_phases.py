import re

from draftworth.engines.phases import Phase, table, told_by
from draftworth.engines.shown import shortened
from draftworth.engines.versions import number


def test_the_first_row_that_matches_at_a_lines_beginning_counts() -> None:
    lines = table([(2, "loading", r"load.*?(?P<percent>\d+) ?%"), (2, "loading", "load"), (1, "up", "up")])
    assert told_by("loaded 40 %", lines) == (Phase(2, "loading"), "loading, 40 %")
    assert told_by("loaded", lines) == (Phase(2, "loading"), "loading")
    assert told_by("Up", lines) is None
    assert told_by("Up", table([(1, "up", "up")], re.IGNORECASE)) == (Phase(1, "up"), "up")


def test_only_a_long_text_is_cut() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "abc…"
    assert shortened("a" * 161) == "a" * 160 + "…"


def test_a_versions_first_three_numbers_are_read() -> None:
    assert number("0.5.12.post1") == (0, 5, 12)
    assert number("v1.2") == (1, 2, 0)
    assert number("main") is None
    assert number(None) is None
