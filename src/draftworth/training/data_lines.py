"""What the stage `data` found, as lines for a person."""

from collections.abc import Mapping

from draftworth.traces.base import BadRows
from draftworth.training.reading import NO_ANSWER, UNSEEN

_KINDS = ("note: ", "regenerated: ")


def findings(counts: Mapping[str, int], bad: BadRows) -> list[str]:
    """Return what was made, cut, left out and noted, one line each."""
    said: list[str] = []
    for name in ("train", "held_out"):
        own = {what: counts.get(f"{name}_{what}", 0) for what in ("samples", "tokens", "loss_tokens")}
        said.append(
            f"{name}: {own['samples']:,} samples, {own['tokens']:,} tokens, {own['loss_tokens']:,} of them learned"
        )
        cut, lost = counts.get(f"{name}_cut_samples", 0), counts.get(f"{name}_cut_loss_tokens", 0)
        if cut:
            said.append(f"{name}: {cut:,} samples cut at max_tokens, {lost:,} learned tokens lost")
        inexact = counts.get(f"{name}_inexact_samples", 0)
        if inexact:
            said.append(f"{name}: {inexact:,} samples have ids made of text, not the server's own")
    if "texts_to_stay_unseen" in counts:
        met = bad.counts.get(UNSEEN, 0)
        said.append(f"texts that must stay unseen: {counts['texts_to_stay_unseen']:,}; conversations with one: {met:,}")
    said += bad.lines()
    for kind in _KINDS:
        said += [f"{count:,} {what.removeprefix(kind)}" for what, count in counts.items() if what.startswith(kind)]
    return said


def nothing_left(name: str, share: float, bad: BadRows) -> str:
    """Return why one of the two files has no sample, in one line.

    Args:
        name: `train` or `held_out`.
        share: of conversations that are held out.
        bad: what was left out.
    """
    reasons = "; ".join(bad.lines()) or "the sources are empty"
    if name == "held_out":
        return (
            f"no held-out sample: held_out = {share:g} leaves no whole conversation out ({reasons}); more "
            "conversations are needed"
        )
    anew = "`[data.regenerate]` has the target write answers"
    return f"no sample to learn from: {reasons}; {anew if NO_ANSWER in bad.counts else 'see docs/training.md'}"
