"""Versions, the words of a doubt, flags as people write them, facts of a real log, and anything at all."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.base import Doubt, Planned, StartupFacts
from draftworth.engines.vllm import releases
from draftworth.engines.vllm.doubts import doubts
from draftworth.engines.vllm.log import VLLMLogReader

DATA = Path(__file__).parent / "data"
NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4}


def found(planned: Planned, version: str | None, **facts: Any) -> dict[str, Doubt]:
    return {doubt.code: doubt for doubt in doubts(planned, StartupFacts(version=version, **facts))}


def facts_of(name: str) -> StartupFacts:
    reader = VLLMLogReader()
    reader.feed((DATA / f"vllm_0.32_{name}.txt").read_text(encoding="utf-8", errors="replace"))
    return reader.facts()


@pytest.mark.parametrize(
    ("version", "low", "high", "outside"),
    [
        ("0.8.5", "0.8.5", "0.8.5", ""),
        ("v0.14.1", "0.14.1", "0.14.1", ""),
        ("0.25.0+cu129", "0.25.0", "0.25.0", ""),
        ("0.8.5.post1", "0.8.5", "0.8.5", ""),
        ("0.10.1", "0.10.1.1", "0.10.1.1", ""),  # the nearest of its minor release
        ("0.10.1.1", "0.10.1.1", "0.10.1.1", ""),
        ("0.11.0", "0.11.2", "0.11.2", ""),
        ("0.32.4", "0.32.0", "0.32.0", ""),
        ("0.26.1", "0.25.0", "0.28.0", ""),
        ("0.32.1.dev3+g123", "0.32.0", "0.33.0", ""),
        ("0.29.0rc1", "0.28.0", "0.29.0", ""),
        ("0.33.0.dev1", "0.32.0", "0.33.0", ""),
        ("0.33.1", "0.33.0", "0.33.0", "newer"),
        ("1.0", "0.33.0", "0.33.0", "newer"),
        ("0.7.3", "0.8.5", "0.8.5", "older"),
    ],
)
def test_a_version_is_judged_as_what_was_read_nearest_to_it(version: str, low: str, high: str, outside: str) -> None:
    judged = releases.judged_as(version)
    assert judged is not None
    assert (releases.text(judged.low), releases.text(judged.high), judged.outside) == (low, high, outside)


@pytest.mark.parametrize("version", [None, "", "dev", "vllm", "x.1.2"])
def test_what_is_no_version_is_none(version: str | None) -> None:
    assert releases.judged_as(version) is None


def test_what_holds_for_one_neighbour_only_is_a_note_that_says_so() -> None:
    # 0.24.0 and 0.28.0 surround 0.26.0: a draft model keeps asynchronous scheduling from 0.28.0 on.
    doubt = found(
        Planned(name="a", speculation={"method": "draft_model", "model": "d", "num_speculative_tokens": 3}), "0.26.0"
    )
    assert doubt["async_scheduling_off"].severity == "note"
    assert "so in 0.25.0, not in 0.28.0; 0.26.0 lies between" in doubt["async_scheduling_off"].what
    assert found(Planned(name="a", speculation=NGRAM), "0.26.0")["async_scheduling_off"].severity == "changed"


def test_a_newer_or_older_release_is_judged_with_a_note() -> None:
    planned = Planned(name="a", speculation={**NGRAM, "nonsense": 1})
    newer, older = found(planned, "0.40.0"), found(planned, "0.7.3")
    assert newer["version_newer"].severity == "note"
    assert "judged as 0.33.0" in newer["version_newer"].what
    assert "unknown_key" in newer
    assert "judged as 0.8.5" in older["version_older"].what


def test_without_a_version_only_what_holds_everywhere_is_said_and_the_rest_is_named() -> None:
    given = found(Planned(name="a", speculation={**NGRAM, "num_spec_tokens": 5}, sampling=frozenset({"min_p"})), None)
    assert set(given) == {"unknown_key", "version_unknown"}
    assert "sampling_refused (0.14.1 and later)" in given["version_unknown"].what
    assert given["unknown_key"].since == "0.8.5 and later"
    assert set(found(Planned(name="a"), "?")) == {"version_unknown"}


def test_since_names_the_releases_that_were_read() -> None:
    planned = Planned(name="a", speculation=NGRAM)
    assert found(planned, "0.20.2")["async_scheduling_off"].since == "0.14.1 to 0.32.0"
    assert found(Planned(name="a", speculation={**NGRAM, "speculative_token_tree": ""}), "0.8.5")[
        "unknown_key"
    ].since == ("0.8.5, 0.24.0 and later")


def test_the_worst_comes_first() -> None:
    planned = Planned(
        name="a", speculation={"method": "suffix", "prompt_lookup_max": 3, "nonsense": 1}, sampling=frozenset({"min_p"})
    )
    severities = [doubt.severity for doubt in doubts(planned, StartupFacts(version="0.32.0"))]
    assert severities == sorted(severities, key=["refused", "unknown", "changed", "costs", "note"].index)
    assert {"refused", "unknown", "changed", "note"} <= set(severities)


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("num_spec_tokens", "write 'num_speculative_tokens'"),
        ("num_speculative_token", "write 'num_speculative_tokens'"),
        ("promt_lookup_max", "write 'prompt_lookup_max'"),
        ("ngram_prompt_lookup_max", "write 'prompt_lookup_max'"),
        ("speculative_model", "write 'model'"),
        ("xyzzy", "leave it out"),
    ],
)
def test_a_near_miss_names_the_right_key(key: str, fix: str) -> None:
    assert found(Planned(name="a", speculation={**NGRAM, key: 1}), "0.32.0")["unknown_key"].fix == fix


def test_an_unknown_key_is_refused_by_some_releases_and_dropped_by_others() -> None:
    planned = Planned(name="a", speculation={**NGRAM, "num_spec_tokens": 5})
    assert [found(planned, version)["unknown_key"].what.endswith("drops it without a word") for version in (
        "0.8.5", "0.9.2", "0.14.1", "0.20.2"
    )] == [False, True, True, False]  # fmt: skip


def test_an_old_flat_flag_names_the_key_that_does_the_same() -> None:
    planned = Planned(name="a", args=("--ngram-prompt-lookup-max", "4"))
    assert found(planned, "0.32.0")["unknown_flag"].fix == (
        'leave it out and set "prompt_lookup_max" in speculative_config'
    )


def test_speculation_in_the_arms_own_flags_is_judged_like_a_configuration() -> None:
    bad = json.dumps({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 5, "prompt_lookup_max": 2})
    for args in (("--speculative-config", bad), (f"--speculative_config={bad}",), ("-sc", bad)):
        assert "lookup_min_above_max" in found(Planned(name="a", args=args), "0.32.0")
    assert "tokens_missing" in found(Planned(name="a", args=("--spec-method", "ngram")), "0.32.0")


def test_speculation_in_command_and_arm_is_refused() -> None:
    command = ("bash", "-c", "exec vllm serve m --spec-method ngram --spec-tokens 3")
    assert (
        "spec-method"
        in found(Planned(name="a", command=command, speculation=NGRAM), "0.32.0")["speculation_twice"].what
    )


def test_a_cpu_server_has_no_asynchronous_scheduling_to_lose_and_no_cuda_graphs() -> None:
    # Seen with vLLM 0.32.0: create_engine_config() of a baseline on a CPU has async_scheduling = False too.
    facts = facts_of("baseline")
    assert (facts.version, facts.runner, facts.config["device_config"]) == ("0.32.0", "V1", "cpu")
    planned = Planned(name="a", command=("vllm", "serve", "/models/smol"), speculation=NGRAM)
    assert [doubt.code for doubt in doubts(planned, facts)] == ["sampled_on_cpu"], "seen with 0.32.0 there"
    assert "async_scheduling_off" in found(planned, "0.32.0")
    asked = planned.model_copy(update={"args": ("--async-scheduling",), "env": {"VLLM_USE_V2_MODEL_RUNNER": "1"}})
    assert {doubt.code for doubt in doubts(asked, facts)} == {
        *("runner_refused", "async_scheduling_refused"),
        "sampled_on_cpu",
    }


def test_the_running_servers_configuration_stands_in_for_flags_that_are_not_known() -> None:
    config = {"args.enable_lora": "True", "pipeline_parallel_size": "2", "max_seq_len": "2048"}
    planned = Planned(
        name="a", speculation={"method": "eagle3", "model": "d", "num_speculative_tokens": 3, "max_model_len": 4096}
    )
    given = found(planned, "0.14.1", config=config)
    assert {"lora", "pipeline_parallel", "draft_length"} <= set(given)
    flagged = planned.model_copy(update={"command": ("vllm", "serve", "m", "--no-enable-lora", "-pp", "1")})
    assert not {"lora", "pipeline_parallel"} & set(found(flagged, "0.14.1", config=config))


def test_the_runner_a_server_told_decides_what_an_arm_changes() -> None:
    planned = Planned(name="a", speculation={"method": "suffix", "num_speculative_tokens": 8})
    assert found(planned, "0.25.0", runner="V2")["runner_changes"].severity == "changed"
    assert found(planned, "0.25.0")["runner_changes"].severity == "note"
    assert "runner_changes" not in found(planned, "0.25.0", runner="V1")
    # A server that speculates may be on V1 for that, which says nothing of the baseline.
    assert found(planned, "0.33.0", runner="V1", speculating=True)["runner_changes"].severity == "changed"


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["ngram", "eagle3", "synthetic", "fly", "1", "0"]),
    st.lists(st.one_of(st.integers(-1, 9), st.floats(), st.text(max_size=2)), max_size=4),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
_KEYS = st.one_of(st.sampled_from(sorted(releases.KEYS)), st.text(max_size=12))
_METHODS = st.one_of(st.sampled_from(sorted(releases.METHODS)), _VALUES)
_CONFIGS = st.builds(
    lambda config, method: {**config, "method": method}, st.dictionaries(_KEYS, _VALUES, max_size=6), _METHODS
)
_WORDS = st.one_of(
    st.sampled_from(
        [
            "vllm", "serve", "bash", "-c", "vllm serve m '", "--async-scheduling", "-tp", "-pp", "--enable-lora", "=",
            "--speculative-config", '{"method": 3}', "{", "--compilation-config",
            '{"cudagraph_capture_sizes": [1, "x"]}',
            "--cudagraph-capture-sizes", "--max-num-seqs", "--max-num-batched-tokens=8k", "0", "-1", "7", "--", "-",
            "--spec-method", "--compilation-config.max_cudagraph_capture_size", "--max-model-len", "VLLM_USE_V1=0",
        ]
    ),
    st.text(max_size=10),
)  # fmt: skip
_VERSIONS = st.one_of(
    st.none(),
    st.sampled_from([releases.text(release) for release in releases.READ]),
    st.from_regex(r"v?\d{1,3}\.\d{1,3}(\.\d{1,3}){0,2}(rc\d|\.dev\d)?(\+\w{1,4})?", fullmatch=True),
    st.text(max_size=12),
)


_PLANS = st.builds(
    lambda config, command, args, switch, sampling: Planned(
        name="a",
        command=tuple(command),
        args=tuple(args),
        env={"VLLM_USE_V2_MODEL_RUNNER": switch, "VLLM_USE_V1": switch},
        speculation=config,
        sampling=sampling,
    ),
    st.one_of(st.none(), _CONFIGS),
    st.lists(_WORDS, max_size=6),
    st.lists(_WORDS, max_size=6),
    st.sampled_from(["", "0", "1", "yes", "None"]),
    st.frozensets(st.sampled_from(["min_p", "logit_bias", "min_tokens", "n", "logprobs", "bad_words"])),
)
_TOLD = st.dictionaries(
    st.sampled_from(["max_seq_len", "device_config", "args.enable_lora", "args.max_num_seqs", "args.seed"]),
    st.sampled_from(["cpu", "cuda", "True", "None", "8", "-8", "0", ""]),
)


@settings(max_examples=100, deadline=None)
@given(planned=_PLANS, version=_VERSIONS, told=_TOLD, runner=st.sampled_from([None, "V1", "V2"]))
def test_nothing_that_is_planned_makes_it_raise(
    planned: Planned, version: str | None, told: dict[str, str], runner: str | None
) -> None:
    given = doubts(planned, StartupFacts(version=version, config=told, runner=runner))
    assert all(doubt.code and doubt.what and doubt.fix for doubt in given)
    assert len({(doubt.code, doubt.what) for doubt in given}) == len(given)


@given(st.lists(st.sampled_from(releases.READ), unique=True))
def test_spans_name_exactly_the_releases_they_are_of(chosen: list[releases.Release]) -> None:
    named: set[releases.Release] = set()
    written = releases.spans(chosen)
    names = {releases.text(release): index for index, release in enumerate(releases.READ)}
    for part in written.split(", ") if written else []:
        first, _, last = part.partition(" to ")
        start, stop = first.removesuffix(" and later"), last or first
        end = len(releases.READ) - 1 if part.endswith(" and later") else names[stop]
        named |= set(releases.READ[names[start] : end + 1])
    assert named == set(chosen)
