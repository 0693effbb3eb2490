"""Whether a drafter that learns from other requests' answers was asked the same prompts before. Pure.

Such a drafter finds the whole answer again and drafts it to its end: measured on a CPU, vLLM's suffix decoding was 1.09
times as fast on prompts that its server had not seen (4 at a time), and 3.5 and 3.3 times on those it had answered
before (2 and 1 at a time; docs/prediction-error.md, cpu-smollm2-b).
Traffic that repeats itself is another matter; a benchmark's repeats are not it.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from draftworth.findings import Code, Finding, find
from draftworth.trials.base import Block
from draftworth.trials.remarks import ArmInfo

_TOLD = 0.05
"""Share of a load's requests that were answered before from which on it is told."""
_DEFAULT = "ngram-mod"
"""What llama.cpp's `--spec-default` switches on."""


class _Engine(NamedTuple):
    """Where an engine's drafter is named, and which of them learn from all answers."""

    key: str
    flag: str
    learning: tuple[str, ...]
    default: str | None = None
    """A flag that switches `_DEFAULT` on."""


_OTHERS: Mapping[str, _Engine] = {
    "sglang": _Engine("algorithm", "--speculative-algorithm", ("NGRAM",)),
    "llamacpp": _Engine(
        "type", "--spec-type", ("ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"), "--spec-default"
    ),
}

Prompts = AbstractSet[tuple[int, ...]]
"""Token ids of prompts."""


def learns(config: Mapping[str, Any] | None, args: Sequence[str], engine: str) -> str | None:
    """Return the name of an arm's drafter where it drafts from answers to other requests; None where it does not.

    Source: vLLM's `suffix_decoding_max_cached_requests` (0 leaves only each request's own tree), SGLang's NGRAM, whose
    trie is one for all requests, and llama.cpp's n-gram maps, pools and caches, which outlive a request.

    Args:
        config: the arm's speculative configuration: keys as the engine's flags, with or without their beginning.
        args: its further arguments.
        engine: what serves it.
    """
    own = {_plain(key): value for key, value in (config or {}).items()}
    if engine == "vllm":
        of_others = own.get("suffix_decoding_max_cached_requests", 1)
        return "suffix decoding" if own.get("method") == "suffix" and of_others != 0 else None
    if engine not in _OTHERS:
        return None
    words = [word for one in args for word in one.partition("=")[::2] if word]
    given = [*_names(own, _OTHERS[engine].key), *_flagged(words, _OTHERS[engine])]
    return next((f"{name} drafting" for name in _OTHERS[engine].learning if name.lower() in given), None)


def _plain(key: str) -> str:
    """Return a key as the short form has it: `--spec-type`, `spec_type` and `type` are one."""
    name = key.strip().lstrip("-").replace("-", "_")
    return name.removeprefix("speculative_").removeprefix("spec_")


def _names(own: Mapping[str, Any], key: str) -> list[str]:
    """Return the drafters of a configuration, in small letters; llama.cpp takes several, as a list or with commas."""
    value = own.get(key) or ()
    several = value if isinstance(value, list | tuple) else (value,)
    found = [name.strip().lower() for one in several for name in str(one).split(",")]
    return [*found, *([_DEFAULT] if own.get("default") and key == "type" else [])]


def _flagged(words: Sequence[str], engine: _Engine) -> list[str]:
    """Return the drafters that arguments name."""
    found = []
    for at, word in enumerate(words):
        if word == engine.flag and at + 1 < len(words):
            found += _names({engine.key: words[at + 1]}, engine.key)
        elif word == engine.default:
            found.append(_DEFAULT)
    return found


def remembered(arm: ArmInfo, blocks: Sequence[Block], before: Prompts = frozenset()) -> dict[str, Finding]:
    """Return a finding for each load at which a drafter had met the prompts before, by the load's label.

    Args:
        arm: the variant.
        blocks: its own, in the order in which they were measured.
        before: prompts that its server had answered before the trial.
    """
    args = arm.declared.get("args") or ()
    what = learns(arm.config, args, arm.engine)
    if what is None:
        return {}
    sent: dict[str, int] = {}
    again: dict[str, int] = {}
    for start in dict.fromkeys(block.start for block in blocks):
        met: set[str] = set()
        for block in (one for one in blocks if one.start == start):
            for window in block.windows:
                label = window.point.label
                for row in sorted(window.rows, key=lambda one: one.started_unix):
                    known = row.prompt_id in met or tuple(row.prompt_token_ids) in before
                    sent[label] = sent.get(label, 0) + 1
                    again[label] = again.get(label, 0) + known
                    met.add(row.prompt_id)
    return {
        label: find(
            Code.DRAFTS_REMEMBERED,
            f"{arm.name}{f' at {label}' if label else ''}: {what} learns from every answer, and its server had "
            f"answered {again[label]} of the {count} prompts before",
            arm=arm.name,
        )
        for label, count in sent.items()
        if again[label] > _TOLD * count
    }
