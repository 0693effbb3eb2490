from typing import Any

import pytest

from draftworth.engines.base import Doubt, Planned, StartupFacts
from draftworth.engines.counts import FIELDS
from draftworth.engines.llamacpp import LlamaCpp, known
from draftworth.engines.llamacpp.releases import TYPES, build_of, title

SERVER = ("llama-server", "-m", "a.gguf", "--metrics", "--parallel", "4", "-lv", "4")
NEWEST = "b11434"


def doubts(
    speculation: dict[str, Any] | None = None,
    *args: str,
    version: str | None = NEWEST,
    command: tuple[str, ...] = SERVER,
    env: dict[str, str] | None = None,
) -> dict[str, Doubt]:
    arm = Planned(name="variant", command=command, env=env or {}, speculation=speculation, args=args)
    return {one.code: one for one in LlamaCpp().doubts(arm, StartupFacts(version=version))}


def test_an_arm_that_does_what_it_says_raises_no_doubt() -> None:
    assert doubts() == {}
    assert doubts({"type": "ngram-simple", "size_n": 4, "size_m": 8}) == {}
    assert doubts({"type": "draft-simple", "model": "d.gguf", "n_max": 4, "p_min": 0.7}) == {}


@pytest.mark.parametrize(
    ("flag", "instead"),
    [("--draft-max", "--spec-draft-n-max"), ("--draft-min", "--spec-draft-n-min"), ("--spec-ngram-size-n", "-size-n")],
)
def test_removed_flags_stop_the_server_and_their_heirs_are_named(flag: str, instead: str) -> None:
    found = doubts(None, "--spec-type", "ngram-mod", "--spec-ngram-mod-n-min", "9", flag, "8")
    assert found["removed_flag"].severity == "refused"
    assert instead in found["removed_flag"].fix
    key = flag.removeprefix("--").replace("-", "_")
    assert "removed_flag" in doubts({"type": "ngram-simple", key: 8})


def test_an_unknown_type_is_refused_and_the_right_one_named() -> None:
    found = doubts({"type": "ngram_simple"})["unknown_type"]
    assert (found.severity, found.fix) == ("refused", "write ngram-simple")
    assert doubts({"type": "mtp"})["unknown_type"].fix == "write draft-mtp"
    assert "ngram-mod" in doubts({"type": "lookahead"})["unknown_type"].fix


def test_a_type_that_a_build_does_not_know_yet() -> None:
    old = doubts({"type": "draft-dspark", "model": "d.gguf", "p_min": 0.5}, version="b9873")["unknown_type"]
    assert old.severity == "refused"
    assert "b10173" in old.fix
    unknown = doubts({"type": "draft-dspark", "model": "d.gguf", "p_min": 0.5}, version=None)["unknown_type"]
    assert (unknown.severity, unknown.since) == ("unknown", "b10173 and later")
    assert "unknown_type" not in doubts({"type": "draft-dspark", "model": "d.gguf", "p_min": 0.5})


def test_flags_that_are_none_or_come_later_or_went() -> None:
    assert doubts(None, "--spec-no-such", "3")["unknown_flag"].severity == "refused"
    later = doubts({"type": "draft-simple", "model": "d", "p_min": 0.5, "sampling": "probabilistic"}, version="b10069")
    assert "b11401" in later["unknown_flag"].fix
    assert "unknown_flag" not in doubts({"type": "draft-simple", "model": "d", "p_min": 0.5, "sampling": "greedy"})
    assert doubts(None, "--spec-draft-ctx-size", "512")["removed_flag"].since == "after b9093"
    assert "removed_flag" not in doubts(None, "--spec-draft-ctx-size", "512", version="b9093")


def test_a_value_behind_an_equals_sign_is_refused() -> None:
    assert doubts(None, "--spec-type=ngram-mod")["equals_sign"].severity == "refused"


def test_a_draft_type_without_its_draft_is_served_without_speculation() -> None:
    simple = doubts({"type": "draft-simple", "p_min": 0.5})["draft_missing"]
    assert simple.severity == "changed"
    assert "requires a draft context" in simple.what
    eagle = doubts({"type": "draft-eagle3", "p_min": 0.5})["draft_missing"]
    assert "says nothing of it" in eagle.what
    assert doubts({"type": "draft-mtp", "p_min": 0.5})["draft_in_model"].severity == "note"
    assert "draft_missing" not in doubts({"type": "draft-eagle3", "p_min": 0.5}, "-hf", "org/model")


def test_a_draft_without_a_type_is_loaded_and_never_asked() -> None:
    found = doubts(None, "-md", "d.gguf")["type_missing"]
    assert (found.severity, found.fix) == ("changed", "add --spec-type draft-simple")
    assert found.since == "b9464 and later"
    assert "type_missing" not in doubts(None, "-md", "d.gguf", version="b9432")
    assert "type_missing" in doubts(None, env={"LLAMA_ARG_SPEC_DRAFT_MODEL": "d.gguf"})


def test_a_parameter_of_another_type_has_no_effect() -> None:
    found = doubts({"spec_type": "ngram-simple", "spec_draft_n_max": 5})["no_effect"]
    assert found.severity == "changed"
    assert found.fix == "use --spec-ngram-simple-size-m"
    assert "no_effect" in doubts({"type": "ngram-simple", "spec_ngram_mod_n_max": 5})
    assert "no_effect" not in doubts(
        {"type": "ngram-mod,draft-simple", "draft": {"model": "d", "n_max": 3, "p_min": 0.5}}
    )


def test_synthetic_acceptance_is_never_a_way_to_decide() -> None:
    assert doubts({"type": "ngram-simple", "synth_len": 2.5})["synthetic_acceptance"].severity == "changed"
    assert doubts(None, "--spec-synth-len", "2.5")["type_missing"].severity == "refused"
    assert doubts({"type": "ngram-simple", "synth_len": 2.5}, version="b10615")["unknown_flag"].severity == "refused"


def test_what_costs() -> None:
    found = doubts({"type": "draft-simple", "model": "d.gguf", "n_max": 64})["p_min_default"]
    assert found.severity == "costs"
    assert "64 tokens" in found.what
    assert "p_min_default" not in doubts({"type": "draft-simple", "model": "d.gguf"}, version="b9093")
    assert doubts({"type": "ngram-mod", "n_match": 8, "n_min": 4})["short_match"].severity == "costs"
    assert doubts({"type": "ngram-mod"})["long_drafts_only"].severity == "changed"
    assert "long_drafts_only" in doubts({"spec_default": True})
    quantised = doubts({"type": "draft-simple", "model": "d", "p_min": 0.5, "type_k": "q8_0"})
    assert quantised["quantised_draft_cache"].severity == "costs"
    assert doubts(None, "-ctv", "q8_0", "-fa", "off")["quantised_cache"].severity == "refused"


def test_what_is_good_to_know() -> None:
    bare = doubts({"type": "ngram-simple"}, command=("llama-server", "-m", "a.gguf"))
    assert set(bare) == {"metrics_off", "log_short", "slots"}
    assert "metrics_off" not in doubts(env={"LLAMA_ARG_ENDPOINT_METRICS": "1"}, command=("llama-server",))
    assert "multimodal" in doubts({"type": "ngram-simple"}, "--mmproj", "p.gguf")
    assert "context_shift" in doubts({"type": "ngram-simple"}, "--context-shift")
    assert "log_off" in doubts(None, "--log-disable")
    assert "not_counted" in doubts({"type": "ngram-simple"}, version="b10276")
    assert "n_max_default" in doubts({"type": "draft-simple", "model": "d"}, version=None)


@pytest.mark.parametrize(
    ("speculation", "severity", "words"),
    [
        ({"type": "ngram-simple", "size_n": 0}, "refused", "size-n 0 is not 1 to 1,024"),
        ({"type": "ngram-simple", "size_m": -3}, "refused", "size-m -3 is not 1 to 1,024"),
        ({"type": "ngram-map-k4v", "size_n": 1025}, "refused", "not 1 to 1,024"),
        ({"type": "ngram-map-k", "min_hits": 0}, "refused", "not 1 or more"),
        ({"type": "ngram-mod", "n_match": 0}, "refused", "n-match 0 is not 1 to 1,024"),
        ({"type": "ngram-mod", "n_max": -1, "n_min": 0}, "refused", "n-max -1 is not 0 to 1,024"),
        ({"type": "ngram-mod", "n_max": 0, "n_min": 0}, "changed", "nothing is ever drafted"),
        ({"type": "ngram-simple", "size_n": "many"}, "refused", "is no whole number"),
        ({"type": "ngram-simple", "size_n": 2.5}, "changed", "is read as 2"),
        ({"type": "draft-simple", "model": "d", "p_min": 0.5, "n_max": -1}, "refused", "n-max -1 is not 0 or more"),
        ({"type": "draft-simple", "model": "d", "p_min": 0.5, "n_max": 0}, "changed", "at most one token"),
        ({"type": "draft-simple", "model": "d", "p_min": 0.5, "n_min": -1}, "changed", "thrown away"),
        ({"type": "draft-simple", "model": "d", "p_min": 0.5, "n_min": 4}, "changed", "more than --spec-draft-n-max 3"),
        ({"type": "draft-simple", "model": "d", "p_min": 1.5}, "changed", "never to draft"),
        ({"type": "draft-simple", "model": "d", "p_min": -0.1}, "changed", "it means 0"),
        ({"type": "draft-simple", "model": "d", "p_min": "x"}, "refused", "is no number"),
        ({"type": "ngram-simple", "synth_len": 0.5}, "refused", "is not 1 or more"),
        ({"type": "ngram-simple", "synth_rates": "0.5,1.5"}, "refused", "is not rates from 0 to 1"),
    ],
)
def test_numbers_beyond_the_servers_limits(speculation: dict[str, Any], severity: str, words: str) -> None:
    found = doubts(speculation)["impossible_value"]
    assert found.severity == severity
    assert words in found.what


def test_numbers_within_the_limits_and_those_that_are_decided_elsewhere_are_left_alone() -> None:
    for value in (1, 1024, "$SIZE"):
        assert "impossible_value" not in doubts({"type": "ngram-simple", "size_n": value})
    draft = {"type": "draft-simple", "model": "d", "n_max": 8, "n_min": 8, "p_min": 0}
    assert "impossible_value" not in doubts(draft)
    below = doubts({**draft, "n_max": -1, "n_min": 0}, version="b10405")["impossible_value"]
    assert (below.severity, "before b10448" in below.what) == ("changed", True)


def test_a_configuration_of_another_engine_is_refused() -> None:
    found = doubts({"method": "ngram", "num_speculative_tokens": 5})["configuration"]
    assert found.severity == "refused"
    assert "another engine's name" in found.what


def test_every_doubt_says_what_to_do() -> None:
    arms = ({"type": kind} for kind in (*TYPES, "nonsense", "ngram_mod"))
    for speculation in arms:
        for version in ("b9093", "b10069", NEWEST, None):
            for one in doubts(speculation, "--draft-max", "3", version=version, command=("llama-server",)).values():
                assert one.what
                assert one.fix
                assert one.severity in {"refused", "unknown", "changed", "costs", "note"}


def given(speculation: dict[str, Any] | None, *args: str, version: str | None = NEWEST) -> dict[str, bool]:
    arm = Planned(name="a", command=("llama-server", "-m", "a.gguf", *args), speculation=speculation)
    found = LlamaCpp().gives(arm, StartupFacts(version=version))
    assert [one.name for one in found] == list(FIELDS)
    assert all(one.how for one in found)
    return {one.name: one.given for one in found}


def test_which_counts_a_server_will_tell() -> None:
    ngram = {"type": "ngram-simple"}
    assert all(given(ngram, "--metrics").values())
    without = given(ngram)
    assert [name for name, yes in without.items() if not yes] == ["drafting_steps", "accepted_per_position"]
    old = given(ngram, "--metrics", version="b9093")
    assert [name for name, yes in old.items() if not yes] == ["drafting_steps", "accepted_per_position"]
    plain = given(None, "--metrics")
    assert [name for name, yes in plain.items() if yes] == ["steps", "emitted"]


@pytest.mark.parametrize("metrics", [("--metrics",), ()])
def test_a_server_that_serves_without_its_draft_promises_no_counts_of_drafts(metrics: tuple[str, ...]) -> None:
    without = given({"type": "draft-simple", "p_min": 0.5}, *metrics)
    assert [name for name, yes in without.items() if yes] == ["steps", "emitted"]
    assert not given({"type": "draft-eagle3"}, *metrics)["drafted"]
    assert given({"type": "draft-eagle3"}, "-hf", "org/model", *metrics)["drafted"]
    assert given({"type": "draft-simple", "model": "d.gguf"}, *metrics)["drafted"]
    assert given({"type": "ngram-mod,draft-simple"}, *metrics)["drafted"]
    assert not given(None, "-md", "d.gguf", *metrics, version="b10069")["drafted"]
    assert given(None, "-md", "d.gguf", *metrics)["drafted"]  # its file may name a type


def test_builds_are_read_in_every_spelling() -> None:
    spellings = ("b11434", "11434", "b11434-515e855", "11434 (515e855)", "11434.0.0", "llama.cpp b11434")
    assert {build_of(one) for one in spellings} == {11434}
    assert build_of(None) is build_of("0.6.0-dev") is build_of("") is build_of("b1-unknown") is None
    assert title("11434.0.0") == "llama.cpp b11434"
    assert title("0.6.0-dev") == "llama.cpp 0.6.0-dev"
    assert title(None) == "llama.cpp"


def test_each_flag_is_of_one_type() -> None:
    assert known.group_of("--spec-ngram-map-k-size-n") == "ngram-map-k"
    assert known.group_of("--spec-ngram-map-k4v-size-n") == "ngram-map-k4v"
    assert known.group_of("--spec-draft-n-max") is None
