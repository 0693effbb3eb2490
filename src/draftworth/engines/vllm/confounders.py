"""Compares what two servers told at their start and names every difference beyond speculation itself."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from draftworth.engines.base import Confounder, LogWarning, StartupFacts
from draftworth.engines.vllm.log_warnings import ASYNC_SCHEDULING_OFF, RUNNER_V1

_NOT_LOGGED = "not logged"
_NOT_SET = "not set"
_ARGUMENTS = "args."
_KV_TOKENS = "kv_cache_tokens"
_KV_NOISE = 0.01  # relative; profiling gives a slightly different cache at every start

# Speculation itself, what only measures it, and where a server is reached or writes its files.
_NO_CONFOUNDERS = frozenset(
    {
        "speculative_config",
        "spec_method",
        "spec_model",
        "spec_tokens",
        "per_request_spec_decode_metrics",
        "observability_config.per_request_spec_decode_metrics",
        "observability_config.otlp_traces_endpoint",
        "served_model_name",
        "host",
        "port",
        "uds",
        "root_path",
        "api_key",
        "ssl_keyfile",
        "ssl_certfile",
        "config",
        "download_dir",
        "compilation_config.cache_dir",
        "compilation_config.local_cache_dir",
        "compilation_config.debug_dump_path",
    }
)

# Arguments that the engine's own line prints under another name.
_PRINTED_AS = {"max_model_len": "max_seq_len", "compilation_config": "compilation_config", "device": "device_config"}

_NOTES: tuple[tuple[str, str], ...] = (
    ("compilation_config.cudagraph_mode", "fewer or other CUDA graphs: speculation can bring this with it"),
    (
        "compilation_config.cudagraph_capture_sizes",
        "speculation brings this: a step verifies up to k + 1 tokens a request",
    ),
    ("compilation_config.max_cudagraph_capture_size", "speculation can bring this: sizes are multiples of k + 1"),
    ("compilation_config.compile_ranges_endpoints", "speculation can bring this: steps carry more tokens"),
    (_KV_TOKENS, "a draft's weights and cache take memory from the KV cache; it counts where the cache fills up"),
    ("version", "two releases of vLLM: nothing else of the comparison can be told from speculation"),
    ("runner", "V1 and V2 differ in speed, and their n-gram drafters draft other tokens"),
)
_SCHEDULER_LIMITS = "scheduler_limits_changed"
_LIMITS_KEPT_SINCE = (0, 28)
_RELEASE = re.compile(r"v?(\d+)\.(\d+)")
_BROUGHT_BY_SPECULATION = {
    ASYNC_SCHEDULING_OFF: "vLLM brings this with {method} speculation; try the baseline with --no-async-scheduling",
    _SCHEDULER_LIMITS: "vLLM brings this with {method} speculation; it matters where prompts are long",
    "cuda_graphs_lowered": "{method} speculation can bring this",
}


class _Difference(NamedTuple):
    name: str
    baseline: str
    variant: str


def confounders(baseline: StartupFacts, variant: StartupFacts) -> tuple[Confounder, ...]:
    """Return every difference of two starts beyond speculation, what measures it, names, ports and cache paths.

    Where one of the logs shows no effective configuration, that is told instead of a list of differences.
    """
    differences = [
        *_of_fact("version", baseline.version, variant.version),
        *_of_fact("runner", baseline.runner, variant.runner),
        *_of_configs(baseline, variant),
    ]
    found = [Confounder(name=d.name, baseline=d.baseline, variant=d.variant, note=_note(d.name)) for d in differences]
    named = {difference.name for difference in differences}
    return _merged([*found, *_of_warnings(baseline, variant, named)])


def _merged(found: Sequence[Confounder]) -> tuple[Confounder, ...]:
    """Return one entry a name: several lines of one kind are one difference."""
    by_name: dict[str, list[Confounder]] = {}
    for one in found:
        by_name.setdefault(one.name, []).append(one)
    return tuple(
        Confounder(
            name=name,
            baseline=_joined([one.baseline for one in same]),
            variant=_joined([one.variant for one in same]),
            note="; ".join(dict.fromkeys(one.note for one in same if one.note)),
        )
        for name, same in by_name.items()
    )


def _joined(texts: Sequence[str]) -> str:
    told = list(dict.fromkeys(text for text in texts if text != _NOT_LOGGED))
    return "; ".join(told) or _NOT_LOGGED


def _of_fact(name: str, baseline: str | None, variant: str | None) -> Iterator[_Difference]:
    if baseline and variant and baseline != variant:
        yield _Difference(name, baseline, variant)


def _of_configs(baseline: StartupFacts, variant: StartupFacts) -> Iterator[_Difference]:
    if not baseline.config or not variant.config:
        shown = ["logged" if facts.config else _NOT_LOGGED for facts in (baseline, variant)]
        yield _Difference("configuration", *shown)
        return
    old, new = _counted(baseline.config), _counted(variant.config)
    differing = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    printed = {key.split(".")[0] for key in differing if not key.startswith(_ARGUMENTS)}
    for key in differing:
        name = key.removeprefix(_ARGUMENTS)
        top = name.split(".")[0]
        if name != key and _PRINTED_AS.get(top, top) in printed:
            continue  # the engine's own line shows the same difference
        if key == _KV_TOKENS and _close(old.get(key), new.get(key)):
            continue
        if name == "async_scheduling" and _async_off(baseline) == _async_off(variant):
            continue
        yield _Difference(key, old.get(key, _NOT_SET), new.get(key, _NOT_SET))


def _counted(config: Mapping[str, str]) -> dict[str, str]:
    """Return the keys whose difference counts."""
    kept = {}
    for key, value in config.items():
        name = key.removeprefix(_ARGUMENTS)
        if name not in _NO_CONFOUNDERS and name.split(".")[0] not in _NO_CONFOUNDERS:
            kept[key] = value
    return kept


def _close(old: str | None, new: str | None) -> bool:
    if not old or not new or not (old.isdecimal() and new.isdecimal()):
        return False
    return abs(int(old) - int(new)) <= _KV_NOISE * max(int(old), int(new))


def _async_off(facts: StartupFacts) -> bool:
    logged = any(warning.code == ASYNC_SCHEDULING_OFF for warning in facts.warnings)
    if facts.config.get("device_config") == "cpu":
        return True  # always (`platforms/cpu.py`), though the log blames speculation where there is some
    return logged or facts.config.get("args.async_scheduling") == "False"


def _of_warnings(baseline: StartupFacts, variant: StartupFacts, named: set[str]) -> Iterator[Confounder]:
    old, new = _confounding(baseline), _confounding(variant)
    for key, warning in {**old, **new}.items():
        if key in old and key in new:
            continue
        if warning.code == RUNNER_V1 and "runner" in named:
            continue
        if warning.code == _SCHEDULER_LIMITS and _limits_kept(variant if key in new else baseline):
            continue
        if warning.code == ASYNC_SCHEDULING_OFF and (
            _async_off(baseline) == _async_off(variant) or "args.async_scheduling" in named
        ):
            continue
        yield Confounder(
            name=warning.code,
            baseline=warning.line if key in old else _NOT_LOGGED,
            variant=warning.line if key in new else _NOT_LOGGED,
            note=_warning_note(warning, variant if key in new else baseline),
        )


def _limits_kept(facts: StartupFacts) -> bool:
    """Whether the line about scheduled tokens changes nothing.

    From 0.28.0 on (`config/vllm.py`, _set_max_num_scheduled_tokens) it names max_num_batched_tokens itself, which the
    baseline has too.
    """
    match = _RELEASE.match(facts.version or "")
    return match is not None and (int(match[1]), int(match[2])) >= _LIMITS_KEPT_SINCE


def _confounding(facts: StartupFacts) -> dict[tuple[str, str], LogWarning]:
    return {(warning.code, warning.line): warning for warning in facts.warnings if warning.confounds}


def _warning_note(warning: LogWarning, facts: StartupFacts) -> str:
    note = _BROUGHT_BY_SPECULATION.get(warning.code)
    if note is None or not facts.speculating:
        return warning.advice
    return note.format(method=facts.config.get("speculative_config.method", "this")).strip()


def _note(name: str) -> str:
    if name == "configuration":
        return "a log shows no effective configuration, so other differences could not be looked for; log at level INFO"
    return next((note for start, note in _NOTES if name.startswith(start)), "")
