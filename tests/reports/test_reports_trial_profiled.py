"""A trial's page on its profiles: of a token and of a step, with an interval or rounded and doubted, and the load."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.reports.reports_trials import explained, record

from draftworth.profiles.base import Compared, Profile, Spread
from draftworth.profiles.compare import compare
from draftworth.profiles.read import read_profile
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.profiled import _panel, profiles_html

DATA = Path(__file__).parents[1] / "profiles" / "data"
H200 = Path(__file__).parents[2] / "benchmarks" / "data" / "h200_profile"


def h200(arm: str, **other: Any) -> Profile:
    told = json.loads((H200 / f"read-{arm}-8.json").read_text(encoding="utf-8"))
    return Profile.model_validate(told).model_copy(update=other)


def shown(base: Profile, variant: Profile, **workload: Any) -> str:
    trial = record(("ngram-5",), config={"workload": workload} if workload else {})
    return profiles_html(
        Subject(trial, explained(("ngram-5",)), profiles={"baseline": base, "ngram-5": variant}),
    )


def words(html: str) -> str:
    text = re.sub(r"<[^>]+>", " ", re.sub(r"<svg.*?</svg>", " ", html, flags=re.DOTALL))
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_few_steps_are_rounded_and_many_have_intervals() -> None:
    arms = [read_profile([DATA / f"vllm_h200_moe_{arm}.pt.trace.json.gz"]) for arm in ("baseline", "null-draft")]
    found = compare(*arms)
    few = _panel("baseline", "null-draft", found)
    assert "<td>12.6</td><td>+9</td>" in few
    assert "only 3 decode steps: figures are rounded" in few
    rows = tuple(one.model_copy(update={"interval": Spread(low_ms=1.0, high_ms=2.5)}) for one in found.per_step)
    many = _panel("baseline", "null-draft", found.model_copy(update={"per_step": rows}))
    assert "(+1.000 to +2.500)</td>" in many


def test_a_step_twice_as_long_is_a_token_of_seven_percent_more() -> None:
    html = shown(h200("baseline"), h200("synthetic"))
    # 126 steps of 8.78 ms gave 1008 tokens; 63 of 18.65 gave 1000.1 to 504 requests
    assert "An output token takes 1.17 ms of the server instead of 1.10: +7 %." in words(html)
    assert "A step gives a request 1.98 tokens instead of 1.00." in words(html)
    assert "One decode step takes 18.6 ms instead of 8.78: +112 %." in words(html)
    assert html.index("an output token") < html.index("a decode step"), "what decides comes first"
    assert html.count("<svg") == html.count('role="img" aria-label="Milliseconds') == 2
    assert words(html).count("figures are without intervals") == 1


def test_without_tokens_the_step_is_shown_and_said_to_be_all() -> None:
    html = shown(h200("baseline"), h200("synthetic", tokens=None))
    assert html.count("<svg") == 1
    assert "no figures per token: tokens of the variant not known" in words(html)
    nothing = shown(h200("baseline", steps=None, tokens=None), h200("synthetic"))
    assert "<svg" not in nothing
    assert "shares of the span" in nothing


def test_tokens_of_unlike_loads_are_not_compared() -> None:
    alone = json.loads((H200 / "read-synthetic-1.json").read_text(encoding="utf-8"))
    html = shown(h200("baseline"), Profile.model_validate(alone))
    assert html.count("<svg") == 1
    assert "An output token takes" not in html
    assert "a step carries 8.00 and 1.00 requests on average: the loads differ" in words(html)


def test_a_difference_is_told_with_its_interval() -> None:
    found = compare(h200("baseline"), h200("synthetic"))

    def bounded(some: Any) -> Any:
        return tuple(one.model_copy(update={"interval": Spread(low_ms=0.011, high_ms=0.11)}) for one in some)

    other = Compared.model_validate(found.model_copy(update={"per_token": bounded(found.per_token)}).model_dump())
    assert "+7 % (+1.0 to +10.0 over the steps of these runs)" in words(_panel("baseline", "ngram-5", other))


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ({"concurrency": [8]}, "carries 8.00 requests; the trial was measured with 8 at a time."),
        ({"concurrency": 8}, "the trial was measured with 8 at a time."),
        ({"concurrency": [64]}, "with 64 at a time, and there steps take other times and classes other shares."),
        ({"concurrency": [1, 8]}, "with 1, 8 at a time, and at the other loads steps take other times"),
        ({"concurrency": [8], "rate": [2.0]}, "A profiled step of baseline carries 8.00 requests."),
        ({}, "A profiled step of baseline carries 8.00 requests."),
    ],
)
def test_the_load_of_a_profile_is_told_beside_the_trials(workload: dict[str, Any], said: str) -> None:
    assert said in words(shown(h200("baseline"), h200("synthetic"), **workload))


def test_classes_that_took_nothing_have_no_bar_but_a_row() -> None:
    html = shown(h200("baseline"), h200("synthetic"))
    drawn = "".join(re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL))
    assert ">experts<" in drawn
    assert ">not recognised<" not in drawn
    assert "not recognised: no pattern matches the name" in html
