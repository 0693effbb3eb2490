import pytest

from draftworth.engines.base import Planned, StartupFacts
from draftworth.engines.counts import FIELDS
from draftworth.engines.vllm.gives import gives

NGRAM = {"method": "ngram", "num_speculative_tokens": 5}
SPEC = {"drafting_steps", "drafted", "accepted", "accepted_per_position"}


def told(arm: Planned, version: str | None) -> dict[str, tuple[bool, str]]:
    found = {one.name: (one.given, one.how) for one in gives(arm, StartupFacts(version=version))}
    assert tuple(found) == FIELDS
    return found


@pytest.mark.parametrize(
    ("version", "series", "answers"),
    [
        ("0.8.5", "time_per_output_token_seconds", False),
        ("0.10.1.1", "time_per_output_token_seconds", False),
        ("0.10.2", "inter_token_latency_seconds", False),
        ("0.28.0", "inter_token_latency_seconds", False),
        ("0.29.0", "inter_token_latency_seconds", True),
        ("0.33.0", "inter_token_latency_seconds", True),
        (None, "inter_token_latency_seconds", False),
    ],
)
def test_what_a_release_tells(version: str | None, series: str, answers: object) -> None:
    found = told(Planned(name="a", command=("vllm", "serve", "m"), speculation=NGRAM), version)
    assert all(given for given, _ in found.values())
    assert series in found["steps"][1]
    assert all(("each answer" in found[name][1]) == answers for name in SPEC)


def test_a_baseline_tells_steps_and_tokens_only() -> None:
    found = told(Planned(name="baseline", command=("vllm", "serve", "m")), "0.32.0")
    assert {name for name, (given, _) in found.items() if given} == {"steps", "emitted"}
    assert found["drafted"][1] == "the server does not speculate"


@pytest.mark.parametrize("flag", ["--disable-log-stats", "--disable_log_stats"])
def test_a_server_without_statistics_tells_nothing_and_says_what_to_do(flag: str) -> None:
    found = told(Planned(name="a", command=("vllm", "serve", "m", flag), speculation=NGRAM), "0.32.0")
    assert {given for given, _ in found.values()} == {False}
    assert all("--disable-log-stats" in how for _, how in found.values())


def test_the_old_engine_tells_drafts_in_its_log_only() -> None:
    arm = Planned(name="a", command=("vllm", "serve", "m"), env={"VLLM_USE_V1": "0"}, speculation=NGRAM)
    found = told(arm, "0.9.2")
    assert {name for name, (given, _) in found.items() if given} == {"steps", "drafting_steps", "drafted", "accepted"}
    assert "log's" in found["drafted"][1]
    assert all(given for given, _ in told(arm, "0.11.0").values()), "no release from 0.10 on has V0's speculation"
