from pathlib import Path

import pytest
from tests.decisions.decisions_lab import edited, keep, run, tree

from draftworth.decisions.base import Option
from draftworth.decisions.tree import add_option, begun, load_tree
from draftworth.errors import UsageError

GOOD = """\
# mine
title = "case"

[[options]]
name = "A"
title = "n-gram"

[[options]]
name = "C"
title = "head"
parent = "A"

[options.gate]
words = "w"
all = [{ option = "A", state = ["ruled out"] }]

[[options.evidence]]
kind = "published"
says = "x"

[[options.evidence]]
kind = "published"
says = "y"
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            'parent = "A"',
            'parnet = "A"',
            r"tree\.toml:11: options\[1\]\.parnet: unknown field; did you mean 'parent'\?",
        ),
        ('parent = "A"', 'parent = "Z"', r"option 'C': no option is named 'Z', its parent"),
        ('parent = "A"', 'parent = "C"', r"option 'C' is its own ancestor"),
        ('name = "C"', 'name = "A"', r"two options are named 'A'"),
        ('name = "C"', 'name = "C D"', r"tree\.toml:9: options\[1\]\.name: string should match pattern"),
        (
            'state = ["ruled out"]',
            'state = ["dead"]',
            r"tree\.toml:15: options\[1\]\.gate\.all\[0\]: state must be a list",
        ),
        (
            'option = "A", state',
            'optoin = "A", state',
            r"tree\.toml:15: .*optoin: unknown field; did you mean 'option'\?",
        ),
        (
            '{ option = "A", state = ["ruled out"] }',
            '{ head_for = "M", k = 3 }',
            r":15: .*k does not belong to head_for, which takes nothing beside it",
        ),
        ('{ option = "A", state = ["ruled out"] }', "{ }", r":15: .*a condition has exactly one of: trial, option"),
        (
            '{ option = "A", state = ["ruled out"] }',
            '{ option = "A", state = ["open"], file = "x" }',
            r"this has option, file",
        ),
        (
            '{ option = "A", state = ["ruled out"] }',
            '{ trial = "A", verdict = "quick" }',
            r"verdict must be one of 'faster'.*not 'quick'",
        ),
        ('{ option = "A", state = ["ruled out"] }', '{ trial = "A" }', r"trial needs one of verdict, ratio_below"),
        (
            '{ option = "A", state = ["ruled out"] }',
            '{ engine = "vllm", version_at_least = "new" }',
            r"engine needs version_at_least, like 0\.17, not 'new'",
        ),
        ('all = [{ option = "A", state = ["ruled out"] }]', "", r"a gate needs conditions"),
        ('says = "y"', "", r"tree\.toml:21: options\[1\]\.evidence\[1\]: evidence of kind \"published\" needs says"),
        ('says = "y"', 'says = "y"\nours = false', r"ours = false needs source and date"),
        (
            'says = "y"',
            'says = "y"\nours = false\nsource = "s"\ndate = "May"',
            r"date must be YYYY, YYYY-MM or YYYY-MM-DD, not 'May'",
        ),
        ('says = "y"', "says = y", r"tree\.toml:23: not valid TOML"),
        ('title = "case"', "schema_version = 9", r"schema_version 9: this Draftworth reads 1"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in GOOD
    folder = tree(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(UsageError, match=told):
        load_tree(folder)


def test_a_good_tree_is_read(tmp_path: Path) -> None:
    found = load_tree(tree(tmp_path, GOOD))
    assert [(one.name, one.parent, one.state) for one in found.options] == [("A", None, "open"), ("C", "A", "open")]


def test_no_tree_says_how_one_begins(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`draftworth decide TRIAL` begins one"):
        load_tree(tmp_path)


def test_an_option_is_added_below_what_a_person_wrote(tmp_path: Path) -> None:
    folder = tree(tmp_path, GOOD.rstrip("\n"))
    add_option(folder, Option(name="ngram-5", title='n-gram "5"', method="ngram"))
    text = (folder / "tree.toml").read_text(encoding="utf-8")
    assert text.startswith(GOOD)
    added = begun(folder).find("ngram-5")
    assert added == Option(name="ngram-5", title='n-gram "5"', method="ngram")
    with pytest.raises(UsageError, match="is there already"):
        add_option(folder, Option(name="ngram-5", title="again"))


def test_a_closed_list_of_options_is_named_with_its_line(tmp_path: Path) -> None:
    folder = tree(tmp_path, 'title = "t"\noptions = [{ name = "X", title = "x" }]\n')
    before = (folder / "tree.toml").read_bytes()
    keep(tmp_path, edited("slower", (1.2, 1.1, 1.3)))
    done = run(tmp_path, "decide", "latest")
    assert done.code == 1
    assert "tree.toml:2: options = [...] is a closed list, to which ngram-5 cannot be added" in done.err
    assert (folder / "tree.toml").read_bytes() == before
    # An option that is in it needs nothing added.
    assert run(tmp_path, "decide", "latest", "--option", "X").code == 0
