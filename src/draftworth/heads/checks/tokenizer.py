"""Tokenizers, by what they hold, never by the bytes of their files: a newer library writes the same one differently."""

from collections.abc import Mapping
from typing import Any

from draftworth.heads.base import Method
from draftworth.heads.subject import OWN, CannotCheckError, Check, Fine, Outcome, Severity, Subject, Wrong

_SPECIAL = ("bos_token_id", "eos_token_id")


def tokens(subject: Subject) -> Outcome:
    """Each token has the same id in both."""
    return _compared(subject, "tokens", _vocabulary)


def merges(subject: Subject) -> Outcome:
    """Both split text alike."""
    ours, theirs = _both(subject)
    found, expected = _merges(ours), _merges(theirs)
    if not found and not expected:
        return None
    if found == expected:
        return Fine(f"{len(found)} merges")
    at = next(
        (i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), min(len(found), len(expected))
    )
    return Wrong(f"{len(found)} merges, others from number {at} on", f"{len(expected)} merges, as the target")


def added(subject: Subject) -> Outcome:
    """Added tokens have the same id in both."""
    return _compared(subject, "added tokens", _added)


def special(subject: Subject) -> Outcome:
    """Sequences begin and end with the same tokens."""
    found = _specials(subject.draft.model.generation, subject.draft.config, subject.draft.model.config)
    expected = _specials(subject.target.generation, subject.target.text.config, subject.target.config)
    shared = [name for name in _SPECIAL if name in found and name in expected]
    if not shared:
        raise CannotCheckError("config.json and generation_config.json of the checkpoint tell no bos or eos token")
    # Ends may be more in one of them: a chat model's generation_config.json adds the end of a turn.
    if all(found[name] & expected[name] for name in shared):
        return Fine(", ".join(f"{name} {_shown(found[name])}" for name in shared))
    return Wrong(
        ", ".join(f"{name} {_shown(found[name])}" for name in shared),
        ", ".join(f"{name} {_shown(expected[name])}" for name in shared) + ", as the target",
    )


def _both(subject: Subject) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    draft, target = subject.draft.model, subject.target
    for one, whose in ((draft, "the checkpoint"), (target, "the target")):
        if one.tokenizer is None:
            used = (
                "; vLLM drafts with the target's"
                if one is draft and subject.draft.method is not Method.DRAFT_MODEL
                else ""
            )
            other = f", only {one.other_tokenizer}" if one.other_tokenizer else ""
            raise CannotCheckError(f"{whose} has no tokenizer.json{other}{used}")
    assert draft.tokenizer is not None
    assert target.tokenizer is not None
    return draft.tokenizer, target.tokenizer


def _compared(subject: Subject, what: str, of: Any) -> Outcome:
    ours, theirs = _both(subject)
    found, expected = of(ours), of(theirs)
    if found == expected:
        return Fine(f"{len(found)} {what}, each with the target's id")
    moved = sum(1 for token, at in found.items() if expected.get(token, at) != at)
    alone = len(found.keys() - expected.keys())
    absent = len(expected.keys() - found.keys())
    first = next((token for token, at in found.items() if expected.get(token) != at), None)
    first = first if first is not None else next(iter(expected.keys() - found.keys()))
    return Wrong(
        f"{len(found)} {what}: {moved} with another id, {alone} not the target's, {absent} missing (first: {first!r})",
        f"the target's {len(expected)} {what}",
    )


def _vocabulary(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """Return a tokenizer's own tokens and ids; Unigram's `model.vocab` is a list of token and score."""
    model = tokenizer.get("model")
    found = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(found, Mapping):
        return dict(found)
    if isinstance(found, list):
        return {str(one[0]): at for at, one in enumerate(found) if isinstance(one, list) and one}
    raise CannotCheckError("a tokenizer.json has no model.vocab")


def _merges(tokenizer: Mapping[str, Any]) -> list[str]:
    """Return the merges; written as `a b`, or since tokenizers 0.20 as [a, b]."""
    model = tokenizer.get("model")
    found = model.get("merges") if isinstance(model, Mapping) else None
    return [" ".join(one) if isinstance(one, list) else str(one) for one in found or ()]


def _added(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    found = tokenizer.get("added_tokens") or ()
    return {str(one.get("content")): one.get("id", -1) for one in found if isinstance(one, Mapping)}


def _specials(*holders: Mapping[str, Any]) -> dict[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    for name in _SPECIAL:
        ids: set[int] = set()
        for holder in holders:
            told = holder.get(name)
            ids |= {one for one in (told if isinstance(told, list) else [told]) if type(one) is int}
        if ids:
            found[name] = frozenset(ids)
    return found


def _shown(ids: frozenset[int]) -> str:
    return " and ".join(map(str, sorted(ids)))


_ANOTHER = "the draft was made for another tokenizer; take one that was made for this target"

CHECKS = (
    Check(
        "tokenizer",
        "the tokens of tokenizer.json and their ids",
        "vLLM 0.32: config/speculative.py checks the size of a draft model's vocabulary alone",
        Severity.FAIL,
        _ANOTHER,
        OWN,
        tokens,
    ),
    Check(
        "tokenizer-merges",
        "the merges of tokenizer.json",
        "vLLM 0.32: the draft gets the target's token ids, however it would split the text itself",
        Severity.WARN,
        _ANOTHER,
        OWN,
        merges,
    ),
    Check(
        "added-tokens",
        "the added tokens of tokenizer.json and their ids",
        "chat and tool markers are added tokens; where they moved, every turn begins with rejected drafts",
        Severity.WARN,
        "take a draft of this target's revision; a chat template of another model has other markers",
        OWN,
        added,
    ),
    Check(
        "special-tokens",
        "bos and eos in config.json and generation_config.json",
        "a draft of a base model ends its sequences elsewhere than a chat model",
        Severity.WARN,
        "see whether the draft was made for the base model or for another chat model",
        OWN,
        special,
    ),
)
