"""Which keys, methods, choices and flags of a planned arm a release of vLLM does not know.

Unknown keys stop a start with 0.8.5 (a plain dataclass) and from 0.20.2 on (`extra="forbid"`). Between them a pydantic
dataclass dropped them without a word.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping

from draftworth.engines.vllm.case import Case, Remark, Rule, short
from draftworth.engines.vllm.releases import CHOICES, FLAGS, INSTEAD, KEYS, METHODS, Known, Release, text

_NEAR = 0.6  # similarity from which on a key counts as a misspelling
_ALIASES = {
    "num_spec_tokens": "num_speculative_tokens",
    "spec_tokens": "num_speculative_tokens",
    "speculative_model": "model",
    "draft_model": "model",
    "ngram_prompt_lookup_max": "prompt_lookup_max",
    "ngram_prompt_lookup_min": "prompt_lookup_min",
    "speculative_disable_by_batch_size": "disable_by_batch_size",
    "draft_tp": "draft_tensor_parallel_size",
}


def unknown_keys(case: Case) -> Iterator[Remark]:
    """Name keys of the speculative configuration that this release does not have."""
    for key in case.config or {}:
        known = KEYS.get(key)
        if known and known.at(case.release):
            continue
        silent = case.since("0.9.2") and not case.since("0.20.2")
        happens = "drops it without a word" if silent else "refuses to start"
        yield Remark(
            "unknown_key",
            "unknown",
            f"speculative_config key {short(key)!r} is not known to this vLLM{_when(known)}; it {happens}",
            _instead(key, case.release),
            key,
        )


def unknown_method(case: Case) -> Iterator[Remark]:
    """Name a method that this release does not have."""
    method = case.key("method")
    if method is None or not case.speculates:
        return
    known = METHODS.get(method) if isinstance(method, str) else None
    if known and known.at(case.release):
        return
    there = sorted(name for name, span in METHODS.items() if span.at(case.release))
    near = difflib.get_close_matches(str(method).lower(), there, 1, _NEAR)
    if case.since("0.9.2"):
        happens = "it refuses to start"
    else:
        happens = "it takes the draft's files for what they are, or refuses to start without a model"
    plain = [name for name in there if not name.endswith("_mtp")]
    yield Remark(
        "unknown_method",
        "unknown",
        f"method {short(method)!r} is not known to this vLLM{_when(known)}; {happens}",
        f"write {near[0]!r}" if near and known is None else f"use one of {', '.join(plain)}, or another release",
        short(method),
    )


def unknown_choices(case: Case) -> Iterator[Remark]:
    """Name values of keys that take one of a list."""
    for key, choices in CHOICES.items():
        value = case.key(key)
        if value is None or not _at(KEYS, key, case.release) or _at(choices, str(value), case.release):
            continue
        there = [name for name, span in choices.items() if span.at(case.release)]
        known = choices.get(str(value))
        yield Remark(
            "unknown_choice",
            "unknown",
            f"{key} = {short(value)!r} is not known to this vLLM{_when(known)}; it refuses to start",
            f"use one of {', '.join(there)}",
            key,
        )


def unknown_flags(case: Case) -> Iterator[Remark]:
    """Name flags of speculation that this release's parser refuses."""
    for name in case.flags:
        known = FLAGS.get(name)
        if known is None or known.at(case.release):
            continue
        flag = "--" + name.replace("_", "-")
        gone = known.last is not None
        key = INSTEAD.get(name)
        if gone and key:
            fix = f'leave it out and set "{key}" in speculative_config'
        elif gone:
            fix = "leave it out; no later release has it as a flag"
        else:
            fix = f"leave it out, or use vLLM {text(known.first)} or later"
        when = ": releases before 0.8.5 had it" if gone else _when(known)
        yield Remark("unknown_flag", "unknown", f"{flag} is not known to this vLLM{when}; it does not start", fix, name)


def deprecated_method(case: Case) -> Iterator[Remark]:
    """Name `…_mtp` methods that this release takes for `mtp` (0.11.2 and later, with a warning)."""
    method = case.method
    if case.since("0.11.2") and method and method != "mtp" and method.endswith("_mtp"):
        known = METHODS.get(method)
        if known and known.at(case.release):
            yield Remark(
                "method_renamed",
                "note",
                f"method {method!r} is an old name; this vLLM warns and takes it for 'mtp'",
                'write method = "mtp"',
            )


def _at(table: Mapping[str, Known], name: str, release: Release) -> bool:
    known = table.get(name)
    return known is not None and known.at(release)


def _when(known: Known | None) -> str:
    """Say when something was known, for a release that does not know it."""
    if known is None:
        return ""
    if known.last is None:
        return f" (from {text(known.first)} on it is)"
    return f" ({text(known.first)} to {text(known.last)} had it)"


def _instead(key: str, release: Release) -> str:
    there = [name for name, known in KEYS.items() if known.at(release)]
    guess = _ALIASES.get(key.replace("-", "_"))
    near: Iterable[str] = [guess] if guess in there else difflib.get_close_matches(key.lower(), there, 1, _NEAR)
    if key in KEYS:
        return "leave it out, or use a release that has it"
    return "".join(f"write {name!r}" for name in near) or "leave it out"


RULES: tuple[Rule, ...] = (unknown_keys, unknown_method, unknown_choices, unknown_flags, deprecated_method)
