"""Compares what two servers told at their start and names every difference beyond speculation itself."""

from collections.abc import Iterator

from draftworth.engines.base import Confounder, StartupFacts

_NOT_LOGGED = "not logged"
_NOT_SET = "not set"
_OVERLAP = "disable_overlap_scheduler"  # the warning about it and the setting are one difference
# Speculation itself, what only measures, and where a server writes its files.
_NO_CONFOUNDERS = frozenset(
    {
        "speculative_config",
        "decoding_config",
        "return_perf_metrics",
        "perf_metrics_max_requests",
        "prometheus_metrics_config",
        "enable_iter_perf_stats",
        "enable_iter_req_stats",
        "iter_stats_max_iterations",
        "print_iter_log",
        "per_request_spec_decode_stats",
        "otlp_traces_endpoint",
        "telemetry_config",
        "postprocess_tokenizer_dir",
        "mpi_session",
    }
)
_NOTES = {
    "version": "two releases of TensorRT-LLM: nothing else of the comparison can be told from speculation",
    "runner": "two backends",
    "disable_overlap_scheduler": "some drafters switch it off: try the baseline with disable_overlap_scheduler: true",
    "cuda_graph_config": "fewer or other CUDA graphs; a step verifies up to max_draft_len + 1 tokens a request",
    "max_batch_size": "fewer requests run at once",
    "kv_cache_config": "the cache differs: it counts where it fills up, or where prompts are shared",
}


def confounders(baseline: StartupFacts, variant: StartupFacts) -> tuple[Confounder, ...]:
    """Return every difference of two starts beyond speculation and what measures it.

    Where one of the logs shows no effective configuration, that is told instead of a list of differences.
    """
    return (*_of_facts(baseline, variant), *_of_configs(baseline, variant), *_of_warnings(baseline, variant))


def _of_facts(baseline: StartupFacts, variant: StartupFacts) -> Iterator[Confounder]:
    for name in ("version", "runner"):
        old, new = getattr(baseline, name), getattr(variant, name)
        if old and new and old != new:
            yield Confounder(name=name, baseline=old, variant=new, note=_NOTES[name])


def _of_configs(baseline: StartupFacts, variant: StartupFacts) -> Iterator[Confounder]:
    if not baseline.config or not variant.config:
        shown = ["logged" if facts.config else _NOT_LOGGED for facts in (baseline, variant)]
        note = "a log shows no `LLM Args:` (releases before 1.2 write none), so other differences were not looked for"
        yield Confounder(name="configuration", baseline=shown[0], variant=shown[1], note=note)
        return
    old, new = baseline.config, variant.config
    for key in {**old, **new}:
        top = key.split(".")[0]
        if top not in _NO_CONFOUNDERS and old.get(key) != new.get(key):
            yield Confounder(
                name=key,
                baseline=old.get(key, _NOT_SET),
                variant=new.get(key, _NOT_SET),
                note=_NOTES.get(key) or _NOTES.get(top, ""),
            )


def _of_warnings(baseline: StartupFacts, variant: StartupFacts) -> Iterator[Confounder]:
    old = {warning.code: warning for warning in baseline.warnings if warning.confounds}
    new = {warning.code: warning for warning in variant.warnings if warning.confounds}
    for code, warning in {**old, **new}.items():
        told = code == "overlap_scheduler_off" and len({one.config.get(_OVERLAP) for one in (baseline, variant)}) > 1
        if (code in old) != (code in new) and not told:
            yield Confounder(
                name=code,
                baseline=warning.line if code in old else _NOT_LOGGED,
                variant=warning.line if code in new else _NOT_LOGGED,
                note=warning.advice,
            )
