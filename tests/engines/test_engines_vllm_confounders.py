from pathlib import Path

import pytest

from draftworth.engines.base import LogWarning, StartupFacts
from draftworth.engines.vllm.confounders import confounders
from draftworth.engines.vllm.log import VLLMLogReader

DATA = Path(__file__).parent / "data"
CONFIG = {"model": "m", "dtype": "bf16", "enforce_eager": "False", "kv_cache_tokens": "100000"}
OFF = "Async scheduling not supported with ngram-based speculative decoding and will be disabled."


def real(name: str) -> StartupFacts:
    reader = VLLMLogReader()
    reader.feed((DATA / f"vllm_0.32_{name}.txt").read_text(encoding="utf-8"))
    return reader.facts()


def facts(*codes: str, version: str = "0.32.0", runner: str | None = None, **config: str) -> StartupFacts:
    changed = {key.replace("__", "."): value for key, value in config.items()}
    warnings = [LogWarning(code=c, line=OFF, advice=f"do {c}", confounds=c != "harmless") for c in codes]
    speculating = "speculative_config.method" in changed
    return StartupFacts(
        version=version, runner=runner, config=CONFIG | changed, warnings=tuple(warnings), speculating=speculating
    )


def names(baseline: StartupFacts, variant: StartupFacts) -> list[str]:
    return [c.name for c in confounders(baseline, variant)]


def on_gpu(facts: StartupFacts) -> StartupFacts:
    """The same start as a GPU's log of 0.25.0 would show it."""
    config = {**facts.config, "device_config": "cuda"}
    return facts.model_copy(update={"version": "0.25.0", "config": config})


def test_a_limit_that_is_the_batch_size_itself_is_no_difference_from_0_28_on() -> None:
    old, new = real("baseline"), real("ngram")
    for version, found in (("0.25.1", ["scheduler_limits_changed"]), ("0.28.0", []), ("0.33.0", [])):
        pair = (facts.model_copy(update={"version": version}) for facts in (old, new))
        assert names(*pair) == found, version


def test_on_a_cpu_asynchronous_scheduling_is_off_in_every_arm_whatever_the_log_blames() -> None:
    assert names(real("baseline"), real("ngram")) == []


def test_two_real_starts_with_and_without_ngram_differ_in_what_vllm_brings_with_it() -> None:
    found = confounders(on_gpu(real("baseline")), on_gpu(real("ngram")))
    assert [c.name for c in found] == ["async_scheduling_off", "scheduler_limits_changed"]
    assert found[0].baseline == "not logged"
    assert found[0].variant == OFF
    assert found[0].note.startswith("vLLM brings this with ngram speculation; try the baseline with --no-async")
    back = confounders(on_gpu(real("ngram")), on_gpu(real("baseline")))
    assert [c.baseline for c in back] == [c.variant for c in found]


def test_a_real_eager_start_differs_in_its_mode_and_each_difference_is_told_once() -> None:
    found = confounders(real("baseline"), real("eager"))
    values = {c.name: (c.baseline, c.variant) for c in found}
    assert values["enforce_eager"] == ("False", "True")
    assert values["compilation_config.mode"] == ("DYNAMO_TRACE_ONCE", "NONE")
    assert values["compilation_config.inductor_compile_config.dce"] == ("True", "not set")
    assert "args.enforce_eager" not in values
    assert "eager" in values
    assert len(values) == len(found)


@pytest.mark.parametrize("name", ["baseline", "ngram", "eager"])
def test_a_start_does_not_differ_from_itself(name: str) -> None:
    assert confounders(real(name), real(name)) == ()


def test_speculation_measuring_names_ports_and_cache_paths_are_no_confounders() -> None:
    variant = facts(
        speculative_config__method="ngram",
        args__speculative_config__method="ngram",
        args__spec_method="ngram",
        args__per_request_spec_decode_metrics="summary",
        observability_config__per_request_spec_decode_metrics="summary",
        args__served_model_name="['x']",
        served_model_name="x",
        args__port="8001",
        args__host="0.0.0.0",
        compilation_config__local_cache_dir="/a",
        compilation_config__cache_dir="/b",
        download_dir="/c",
    )
    assert names(facts("harmless"), variant) == []


def test_anything_else_is_one_even_where_it_is_set_in_one_arm_only() -> None:
    variant = facts(dtype="fp16", args__dtype="fp16", args__max_num_seqs="8", max_seq_len="1", args__max_model_len="1")
    found = {c.name: (c.baseline, c.variant) for c in confounders(facts(), variant)}
    assert found == {
        "dtype": ("bf16", "fp16"),
        "args.max_num_seqs": ("not set", "8"),
        "max_seq_len": ("not set", "1"),
    }


def test_the_kv_caches_size_counts_beyond_the_noise_of_profiling() -> None:
    assert names(facts(), facts(kv_cache_tokens="99100")) == []
    assert names(facts(), facts(kv_cache_tokens="90000")) == ["kv_cache_tokens"]


def test_versions_and_runners_are_compared_where_both_are_known() -> None:
    found = confounders(facts(version="0.31.0", runner="V2"), facts("runner_v1", runner="V1"))
    assert [(c.name, c.baseline, c.variant) for c in found] == [("version", "0.31.0", "0.32.0"), ("runner", "V2", "V1")]
    assert "n-gram drafters" in found[1].note
    assert names(facts(runner=None), facts(runner="V1")) == []


def test_asynchronous_scheduling_switched_off_in_both_arms_is_no_difference() -> None:
    off = facts(args__async_scheduling="False")
    assert names(off, facts("async_scheduling_off")) == []
    assert names(facts(), off) == ["args.async_scheduling"]
    assert names(facts(), facts("async_scheduling_off")) == ["async_scheduling_off"]


def test_a_log_without_a_configuration_is_told_instead_of_silence() -> None:
    for baseline, variant in ((StartupFacts(), facts()), (facts(), StartupFacts()), (StartupFacts(), StartupFacts())):
        (found,) = confounders(baseline, variant)
        assert found.name == "configuration"
        assert "could not be looked for" in found.note
        assert "not logged" in (found.baseline, found.variant)


def test_two_lines_of_one_kind_are_one_difference() -> None:
    other = "Async scheduling is not supported with this executor and will be disabled."
    lines = [
        LogWarning(code="async_scheduling_off", line=line, advice="do it", confounds=True) for line in (OFF, other)
    ]
    variant = facts().model_copy(update={"warnings": tuple(lines)})
    (found,) = confounders(facts(), variant)
    assert (found.name, found.baseline, found.variant) == ("async_scheduling_off", "not logged", f"{OFF}; {other}")
    assert found.note == "do it", "the same note is not repeated"
