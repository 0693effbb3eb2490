"""A replay as lines for a terminal: what a person can tell from them."""

from tests.drafters.naive import Request
from tests.drafters.toy import InMemory, Toy

from draftworth.drafters.base import Limits, Setting
from draftworth.drafters.replay import replay
from draftworth.reports.replay import drafter_lines, label, lines

REPEATING = [Request([1, 2], [1, 2] * (20 - at), category=f"kind-{at}") for at in range(15)]


def shown(rows: list[Request], *settings: Setting, others: int = 0, most: int = 20) -> list[str]:
    done = replay(InMemory(rows), Toy(), settings, Limits())
    return lines(done, Toy(), [], path="some.jsonl", others=others, most=most)


def test_parameters_that_differ_are_columns_and_the_others_are_said_once() -> None:
    said = shown(REPEATING, *(Setting(k, 1, 2, {"depth": 24, "least": least}) for k in (1, 5) for least in (0.1, 0.3)))
    [titles] = [line for line in said if "accepted" in line and "tokens per step" in line]
    assert titles.split()[:5] == ["k", "min", "max", "least", "steps"]
    assert "  With depth 24." in said
    assert [line.split()[:5] for line in said if line.strip().startswith("best")] == [["best", "5", "1", "2", "0.1"]]
    assert any(line.startswith("  of k 5, min 1, max 2, least 0.1 ") for line in said)


def test_of_many_categories_the_largest_are_shown() -> None:
    said = "\n".join(shown(REPEATING, Setting(3, 1, 2)))
    assert "kind-11 " in said
    assert "kind-12 " not in said
    assert "3 smaller categories not shown: --json" in said


def test_settings_are_sorted_by_tokens_per_step_and_of_equal_ones_the_cheaper_is_first() -> None:
    # [1 2 1 2 ..] after one unknown token: any k drafts right, and k 4 of min 9 never drafts.
    said = shown([Request([7], [1, 2, 1, 2, 1, 2, 1, 2, 1])], Setting(1, 1, 2), Setting(4, 9, 9), Setting(4, 1, 2))
    table = [line.split() for line in said[3:7]]
    assert [row[-1] if row[0] != "best" else row[0] for row in table[1:2]] == ["best"]
    assert [row[:3] for row in (table[1][1:], table[2], table[3])] == [
        ["4", "1", "2"],
        ["1", "1", "2"],
        ["4", "9", "9"],
    ]


def test_what_is_not_known_is_a_dash() -> None:
    said = shown([Request([1], [2, 3, 4])], Setting(3, 1, 2))
    assert said[4].split() == ["3", "1", "2", "2", "0", "%", "0", "0", "-", "-", "1.00"]
    assert "  No step drafted anything." in said
    assert "  Interval: 95 %, one request: no interval." in said


def test_other_categories_are_counted_as_left_out() -> None:
    said = shown([Request([1], [2, 3]), Request([1], []), Request([1], [2])], Setting(3, 1, 2), others=4)
    assert said[2:5] == [
        "  1 left out: no output tokens, so no steps",
        "  1 left out: one output token, which comes from prefill, so no steps",
        "  4 left out: other categories",
    ]


def test_a_setting_in_words() -> None:
    assert label(Setting(3, 2, 4, {"depth": 24.0, "least": 0.1})) == "k 3, min 2, max 4, depth 24, least 0.1"
    assert label(Setting(3, None, 4), ["k", "min"]) == "k 3"


def test_a_list_of_drafters_says_what_is_special() -> None:
    said = drafter_lines([Toy(), Toy(name="other", shared=True, always_verifies=True)])
    assert said[:4] == ["toy", "  Toy lookup", "  engine vllm; read from toy.py 1.0", "  defaults: k 3, min 1, max 2"]
    assert said[-2:] == [
        "  requests share what was learned: their order and --concurrency matter",
        "  every step verifies k tokens, matched or not",
    ]
