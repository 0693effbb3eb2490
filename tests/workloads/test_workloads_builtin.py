import pytest

from draftworth import workloads
from draftworth.errors import UsageError
from draftworth.workloads import Selection, builtin


def test_the_categories_are_taken_in_turn() -> None:
    ids = [p.id for p in workloads.load("builtin", Selection(prompts_per_category=2)).prompts]
    assert ids == [
        *("coding-1", "math-1", "structured-1", "explanation-1", "editing-1"),
        *("coding-2", "math-2", "structured-2", "explanation-2", "editing-2"),
    ]


def test_every_category_has_prompts_of_its_own() -> None:
    all_of_them = workloads.load("builtin").prompts
    assert len({p.id for p in all_of_them}) == len(all_of_them) == 40
    assert len({p.messages[0]["content"] for p in all_of_them}) == 40
    assert {p.category for p in all_of_them} == set(builtin.CATEGORIES)
    for prompt in all_of_them:
        assert prompt.messages[0]["role"] == "user"
        # A token is seldom more than two words' worth apart: 250 words stay far below 2048 - 192 tokens.
        assert len(prompt.messages[0]["content"].split()) <= 250
        assert prompt.messages[0]["content"].isascii()


def test_editing_prompts_carry_the_text_to_edit() -> None:
    assert all(len(p.messages[0]["content"].split()) >= 120 for p in builtin.category("editing"))


def test_the_order_asked_for_does_not_matter() -> None:
    one = workloads.load("builtin", Selection(categories=["math", "coding"], prompts_per_category=1)).prompts
    assert [p.id for p in one] == ["coding-1", "math-1"]
    assert one == workloads.load("builtin", Selection(categories=["coding", "math"], prompts_per_category=1)).prompts


@pytest.mark.parametrize(
    ("selection", "text"),
    [
        (Selection(categories=["codng"]), r"'codng'; did you mean 'coding'\? There are: coding, "),
        (Selection(categories=["math"], prompts_per_category=99), "'math' has 8"),
        (Selection(categories=[]), "name at least one"),
        (Selection(prompts_per_category=0), "at least 1"),
        (Selection(limit=0), "at least 1"),
    ],
)
def test_an_impossible_choice_is_refused(selection: Selection, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        workloads.load("builtin", selection)


def test_a_layout_makes_no_sense_without_a_file() -> None:
    with pytest.raises(UsageError, match="leave format"):
        workloads.load("builtin", layout="plain")
