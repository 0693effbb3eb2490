"""Arms that only measure: a null draft, and drafts accepted at a configured rate; and the probe of the baseline.

Arms are no candidates: the verdict is never about them and their number takes nothing of the confidence of the others.
What they cost tells the engine's mode and the break-even curve on the user's own server (`draftworth explain`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from draftworth.engines.base import synthetic_in

T = TypeVar("T")

NULL, SYNTHETIC, SYNC, PROBE, PROFILE = "null-draft", "synthetic", "sync", "probe", "profile"
SYNC_ARGS = ("--no-async-scheduling",)
"""What vLLM switches off for n-gram and suffix drafting, alone; for heads it stays on."""
LOOKUP = 60
"""Tokens the null draft's lookup has to match: in real text next to none does."""
_LONG_LOOKUP = 30
_HOST = frozenset({"ngram", "suffix"})
_ASYNC = frozenset({"ngram_gpu", "draft_model", "dspark", "dflash"})
"""Of vLLM's methods, beside EAGLE and MTP: those that keep asynchronous scheduling (`config/vllm.py` of 0.32)."""
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


class Planned(Protocol):
    """An arm as its file declares it."""

    @property
    def name(self) -> str:
        """The arm's name."""

    @property
    def speculative_config(self) -> dict[str, Any] | None:
        """The engine's own speculative configuration."""


def check_words(words: Sequence[str]) -> None:
    """Check the words of `diagnostics`.

    Raises:
        ValueError: one of them is none: says which there are.
    """
    for word in words:
        if word not in {NULL, SYNC, PROBE, PROFILE}:
            _lengths(word)
    if len(set(words)) != len(words):
        raise ValueError("diagnostics: one of them is there twice")


def expand(words: Sequence[str], arms: Sequence[Planned], engine: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the diagnostic arms of a trial: their names and speculative configurations.

    They take method and k of the first variant that speculates, so that they run in the mode they are to measure.
    `null-draft` is n-gram drafting that never finds anything; for suffix drafting too, which has no setting that never
    drafts and runs on the same path. Heads and draft models draft in every step: they have no null draft, and
    `synthetic:1.0` is nearest (all drafts refused).

    Args:
        words: `null-draft`, `synthetic:1.5,2.0`, `sync`, `probe` and `profile` (which take nothing of an arm).
        arms: of the trial.
        engine: the service's.

    Raises:
        ValueError: no arm speculates, the arm has no null draft, a length cannot be reached, or the engine has neither.
    """
    if SYNC in words:
        _check_sync(arms, engine)
    words = [word for word in words if word not in {PROBE, PROFILE, SYNC}]
    if not words:
        return []
    if engine != "vllm":
        raise ValueError(
            f"diagnostics: Draftworth sets up no null draft or synthetic acceptance of {engine}; add an arm of your own"
        )
    like = next((arm.speculative_config for arm in arms if arm.speculative_config), None)
    if like is None:
        raise ValueError("diagnostics: no arm has a speculative_config whose mode they could measure")
    k = like.get("num_speculative_tokens")
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise ValueError("diagnostics: the first arm's speculative_config has no num_speculative_tokens to take")
    method = str(like.get("method") or "draft_model")
    found: list[tuple[str, dict[str, Any]]] = []
    for word in words:
        if word == NULL:
            found.append((NULL, _null(method, k)))
            continue
        for length in _lengths(word):
            if not 1 <= length <= k + 1:
                raise ValueError(
                    f"diagnostics: an acceptance length of {length:g} cannot be reached with k = {k}: 1 to {k + 1}"
                )
            found.append((f"{SYNTHETIC}-{length:g}", _synthetic(like, method, length)))
    return found


def _check_sync(arms: Sequence[Planned], engine: str) -> None:
    """Refuse an arm of scheduling alone where no variant's scheduling changes."""
    methods = [str(arm.speculative_config.get("method") or "draft_model") for arm in arms if arm.speculative_config]
    kept = [one for one in methods if one in _ASYNC or one.startswith("eagle") or one.endswith("mtp")]
    if engine == "vllm" and methods and len(kept) == len(methods):
        raise ValueError(f'diagnostics: "{SYNC}" has nothing to tell: {kept[0]} keeps asynchronous scheduling')


def is_diagnostic(
    config: Mapping[str, Any] | None, env: Mapping[str, str] | None = None, args: Sequence[str] = ()
) -> bool:
    """Whether an arm only measures: synthetic acceptance, a lookup that never matches, or only the scheduling."""
    if synthetic_in(config, env):
        return True
    if not config and set(SYNC_ARGS) <= set(args):
        return True
    # vLLM takes the one that is given for both.
    shortest = (config or {}).get("prompt_lookup_min", (config or {}).get("prompt_lookup_max"))
    return isinstance(shortest, int) and shortest >= _LONG_LOOKUP


def candidates(variants: Sequence[T], only_measures: Callable[[T], bool]) -> tuple[T, ...]:
    """Return the variants a verdict can be about: those that only measure are none, unless there are no others."""
    return tuple(one for one in variants if not only_measures(one)) or tuple(variants)


def _null(method: str, k: int) -> dict[str, Any]:
    if method not in _HOST:
        raise ValueError(
            f"diagnostics: {method} drafts in every step, so it has no null draft; `synthetic:1.0` accepts no draft"
        )
    return {
        "method": "ngram",
        "num_speculative_tokens": k,
        "prompt_lookup_min": LOOKUP,
        "prompt_lookup_max": LOOKUP,
    }


def _synthetic(like: Mapping[str, Any], method: str, length: float) -> dict[str, Any]:
    config = {**like, "rejection_sample_method": "synthetic", "synthetic_acceptance_length": length}
    if method == "ngram":
        # A lookup of one token finds something in nearly every step: drafting steps are what is to be measured.
        config |= {"prompt_lookup_min": 1, "prompt_lookup_max": 1}
    return config


def _lengths(word: str) -> list[float]:
    """Return the acceptance lengths of `synthetic:1.5,2.0`."""
    name, colon, values = word.partition(":")
    parts = [one.strip() for one in values.split(",")]
    if name != SYNTHETIC or not colon or not all(_NUMBER.fullmatch(one) for one in parts):
        raise ValueError(
            f'diagnostics: {word!r} is none; there are "{PROBE}", "{PROFILE}", "{SYNC}", "{NULL}", "{SYNTHETIC}:1.5,2"'
        )
    return [*dict.fromkeys(float(one) for one in parts)]
