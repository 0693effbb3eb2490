"""Compares what two llama.cpp servers told at their start and names every difference beyond speculation itself."""

from collections.abc import Iterator

from draftworth.engines.base import Confounder, StartupFacts

_NOT_LOGGED = "not logged"
_SPECULATIVE = "speculative."
_NOTES = {
    "version": "two builds of llama.cpp: nothing else of the comparison can be told from speculation",
    "model": "two model files: the text itself differs, and so does every time",
    "n_slots": "more slots serve more requests at once, and each has a smaller share of the context",
    "n_ctx": "a draft's weights can take memory from the context where it is fitted to the device (-fit)",
    "n_ctx_slot": "a draft's weights can take memory from the context where it is fitted to the device (-fit)",
    "gpu_layers": "a draft's weights can take memory from the target's layers where it is fitted to the device (-fit)",
    "flash_attn": "attention runs in another way",
    "n_threads": "the processor's part has another number of threads",
}


def confounders(baseline: StartupFacts, variant: StartupFacts) -> tuple[Confounder, ...]:
    """Return every difference of two starts beyond speculation.

    A key that one log lacks is no difference: at another verbosity llama.cpp logs other keys. Where one of the logs
    shows no configuration at all, that is told instead.
    """
    return (*_of_version(baseline, variant), *_of_configs(baseline, variant), *_of_warnings(baseline, variant))


def _of_version(baseline: StartupFacts, variant: StartupFacts) -> Iterator[Confounder]:
    if baseline.version and variant.version and baseline.version != variant.version:
        yield Confounder(name="version", baseline=baseline.version, variant=variant.version, note=_NOTES["version"])


def _of_configs(baseline: StartupFacts, variant: StartupFacts) -> Iterator[Confounder]:
    if not baseline.config or not variant.config:
        shown = ["logged" if facts.config else _NOT_LOGGED for facts in (baseline, variant)]
        yield Confounder(
            name="configuration",
            baseline=shown[0],
            variant=shown[1],
            note="a log shows no configuration, so other differences could not be looked for; log with -lv 4",
        )
        return
    for key, old in baseline.config.items():
        new = variant.config.get(key)
        if new is not None and new != old and not key.startswith(_SPECULATIVE):
            yield Confounder(name=key, baseline=old, variant=new, note=_NOTES.get(key, ""))


def _of_warnings(baseline: StartupFacts, variant: StartupFacts) -> Iterator[Confounder]:
    old = {warning.line: warning for warning in baseline.warnings if warning.confounds}
    new = {warning.line: warning for warning in variant.warnings if warning.confounds}
    for line, warning in {**old, **new}.items():
        if (line in old) != (line in new):
            yield Confounder(
                name=warning.code,
                baseline=line if line in old else _NOT_LOGGED,
                variant=line if line in new else _NOT_LOGGED,
                note=warning.advice,
            )
