"""Compares what two SGLang servers told at their start and names every difference beyond speculation itself."""

from collections.abc import Iterator, Mapping

from draftworth.engines.base import Confounder, LogWarning, StartupFacts
from draftworth.engines.sglang.log_warnings import OVERLAP_OFF, REQUESTS_LIMITED

_NOT_LOGGED = "not logged"
_NOT_SET = "not set"
_KV_TOKENS = "kv_cache_tokens"
_KV_NOISE = 0.01  # relative; profiling gives a slightly different cache at every start

# Where a server is reached, what it is called, what it logs, what is drawn by lot at every start, and keys.
_NO_CONFOUNDERS = frozenset(
    {
        "host",
        "port",
        "grpc_port",
        "nccl_port",
        "served_model_name",
        "api_key",
        "admin_api_key",
        "random_seed",
        "base_gpu_id",
        "download_dir",
        "launch_command",
        "log_level",
        "log_level_http",
        "log_requests",
        "log_requests_level",
        "show_time_cost",
        "dist_init_addr",
        "ssl_keyfile",
        "ssl_certfile",
        "ssl_ca_certs",
        "ssl_keyfile_password",
        "config",
        "weight_version",
        "kv_events",
        "disaggregation_bootstrap_port",
        "spec_trace_dir",
        "enable_multi_layer_eagle",
    }
)
_NOTES = {
    "disable_overlap_schedule": "speculation can bring this; try the baseline with --disable-overlap-schedule",
    "max_running_requests": "SGLang sets 48 where a speculating server names none; give both arms the same",
    "effective_max_running_requests": "SGLang sets 48 where a speculating server names none; give both arms the same",
    "enable_mixed_chunk": "speculation can switch this off; leave it out of both arms",
    "mem_fraction_static": "SGLang takes less where a draft needs room; give both arms the same --mem-fraction-static",
    "cuda_graph_max_bs": "speculation can lower this; give both arms the same",
    "cuda_graph_bs": "speculation can change this; give both arms the same --cuda-graph-max-bs",
    "enable_metrics": "counting costs a little; give it to both arms",
    _KV_TOKENS: "a draft's weights and cache take memory from the KV cache; it counts where the cache fills up",
    "version": "two releases of SGLang: nothing else of the comparison can be told from speculation",
}
# The configuration tells the same difference as the line.
_TOLD_BY = {
    OVERLAP_OFF: ("disable_overlap_schedule",),
    REQUESTS_LIMITED: ("max_running_requests", "effective_max_running_requests"),
    "mixed_chunk_off": ("enable_mixed_chunk",),
    "page_size_changed": ("page_size",),
    "radix_cache_off": ("disable_radix_cache",),
    "cuda_graph_off": ("disable_cuda_graph",),
}


def confounders(baseline: StartupFacts, variant: StartupFacts) -> tuple[Confounder, ...]:
    """Return every difference of two starts beyond speculation, names, ports and keys.

    Where one of the logs shows no configuration, that is told instead of a list of differences. A warning that the
    configurations tell too, or show to be the same, is not told again.
    """
    found: list[Confounder] = []
    if baseline.version and variant.version and baseline.version != variant.version:
        found.append(_named("version", baseline.version, variant.version))
    if baseline.config and variant.config:
        found += _of_configs(baseline.config, variant.config)
    else:
        shown = ["logged" if facts.config else _NOT_LOGGED for facts in (baseline, variant)]
        note = "a log shows no server_args line, so other differences could not be looked for; log at level info"
        found.append(Confounder(name="configuration", baseline=shown[0], variant=shown[1], note=note))
    return (*found, *_of_warnings(baseline, variant))


def _named(name: str, baseline: str, variant: str) -> Confounder:
    return Confounder(name=name, baseline=baseline, variant=variant, note=_NOTES.get(name, ""))


def _of_configs(baseline: Mapping[str, str], variant: Mapping[str, str]) -> Iterator[Confounder]:
    for key in {**baseline, **variant}:
        old, new = baseline.get(key, _NOT_SET), variant.get(key, _NOT_SET)
        if old == new or key in _NO_CONFOUNDERS or key.startswith("speculative_"):
            continue
        if key == _KV_TOKENS and _close(old, new):
            continue
        yield _named(key, old, new)


def _close(old: str, new: str) -> bool:
    if not (old.isdecimal() and new.isdecimal()):
        return False
    return abs(int(old) - int(new)) <= _KV_NOISE * max(int(old), int(new))


def _of_warnings(baseline: StartupFacts, variant: StartupFacts) -> Iterator[Confounder]:
    old, new = _confounding(baseline), _confounding(variant)
    for code in {**old, **new}:
        if code in old and code in new:
            continue
        told_by = _TOLD_BY.get(code, ())
        if any(key in facts.config for key in told_by for facts in (baseline, variant)):
            continue
        warning = old.get(code) or new[code]
        yield Confounder(
            name=code,
            baseline=warning.line if code in old else _NOT_LOGGED,
            variant=warning.line if code in new else _NOT_LOGGED,
            note=warning.advice,
        )


def _confounding(facts: StartupFacts) -> dict[str, LogWarning]:
    return {warning.code: warning for warning in facts.warnings if warning.confounds}
