"""The tables of a training's page: the stages, the epochs, and the figures that are drawn."""

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from draftworth.reports.page import Table, html_table
from draftworth.reports.training.base import Subject
from draftworth.reports.training.figures import binned
from draftworth.reports.trial.parts import fold, plain_table, section
from draftworth.reports.words import NONE, cell, share
from draftworth.training.base import StageManifest, StageName
from draftworth.training.registry import STAGES
from draftworth.trials.progress import duration

_MIB, _GIB = 2**20, 2**30


def stages_html(subject: Subject) -> str:
    """Return the section of the stages: what is done, what runs, what is to come, how long each took."""
    rows = [(str(name), _cells(subject, name)) for name in STAGES]
    table = plain_table("Stages", ("state", "took", "what came of it"), rows)
    note = '<p class="note">Took: the last process of each; what an interrupted one did before is not in it.</p>'
    return section("Stages", f'<div class="words stages">{html_table(table, heading=False)}</div>{note}', key="stages")


def _cells(subject: Subject, name: StageName) -> tuple[str, str, str]:
    standing, found = subject.standing, subject.manifests.get(name)
    at_hand = standing.stage is name and standing.status != "done"
    if found is not None and not (at_hand and standing.status == "running"):
        return "done", duration(found.seconds), came_of(name, found)
    if not at_hand:
        return "to come", NONE, STAGES[name].about
    took = NONE if standing.stage_began is None else duration(max(0.0, standing.written - standing.stage_began))
    word = "now" if standing.status == "running" else standing.status
    return word, took, STAGES[name].about


def came_of(name: StageName, found: StageManifest) -> str:
    """Return what came of a finished stage, in a few words."""
    try:
        return _CAME_OF[name](found.counts, found.facts)
    except (KeyError, TypeError, ValueError, AttributeError):
        return STAGES[name].about  # written by another version


def _data(counts: Mapping[str, int], _: Mapping[str, Any]) -> str:
    trained, held = counts["train_samples"], counts["held_out_samples"]
    return f"{trained:,} samples to train on with {counts['train_loss_tokens']:,} learned tokens, {held:,} held out"


def _states(counts: Mapping[str, int], facts: Mapping[str, Any]) -> str:
    layers = ", ".join(map(str, facts["layers"]))
    size = f"{counts['bytes'] / _GIB:,.1f} GiB" if counts["bytes"] >= _GIB else f"{counts['bytes'] / _MIB:,.1f} MiB"
    return f"{counts['samples']:,} samples, {size}, layers {layers}, {facts['dtype']}"


def _vocab(counts: Mapping[str, int], facts: Mapping[str, Any]) -> str:
    return (
        f"{counts['size']:,} of {counts['vocabulary']:,} tokens, {100 * facts['coverage_train']:.1f} % of the learned"
    )


def _fit(counts: Mapping[str, int], facts: Mapping[str, Any]) -> str:
    length = facts["acceptance_length"]
    best = "" if length is None else f"; best: epoch {facts['best_epoch'] + 1}, {length:.2f} tokens per drafting step"
    return f"{counts['epochs']:,} epochs, {counts['steps']:,} steps on {facts['device']}{best}"


def _eval(counts: Mapping[str, int], facts: Mapping[str, Any]) -> str:
    lengths = [f"{cell(one)} at k = {k}" for k, one in facts["acceptance_length"].items()]
    return f"{counts['samples']:,} held-out samples: {', '.join(lengths)}"


def _export(counts: Mapping[str, int], _: Mapping[str, Any]) -> str:
    return f"{counts['bytes'] / _MIB:,.1f} MiB, {counts['checks_passed']:,} checks of heads passed"


_CAME_OF: dict[StageName, Callable[[Mapping[str, int], Mapping[str, Any]], str]] = {
    StageName.DATA: _data,
    StageName.STATES: _states,
    StageName.VOCAB: _vocab,
    StageName.FIT: _fit,
    StageName.EVAL: _eval,
    StageName.EXPORT: _export,
}


def epochs_table(subject: Subject) -> Table | None:
    """Return every epoch's figures; None before the first has ended."""
    if not subject.epochs:
        return None
    best = subject.best
    heads = ("steps", "walk", "of drafting steps", "held-out loss", "held-out accuracy", "walked in")
    rows = [
        (
            f"{one.epoch + 1}{' (best)' if one is best else ''}",
            (
                f"{one.step:,}",
                cell(one.length),
                f"{one.walked:,}",
                NONE if one.loss is None else f"{one.loss:.3f}",
                ", ".join(share(value) for value in one.accuracy) or NONE,
                NONE if one.walk_s is None else duration(one.walk_s),
            ),
        )
        for one in subject.epochs
    ]
    note = "Accuracy is the trainer's, by step of the training-time test, on all positions; it is no acceptance."
    return plain_table("Epochs", heads, rows, note)


def epochs_html(subject: Subject) -> str:
    """Return the section of the epochs and of the figures by step."""
    epochs = epochs_table(subject)
    shown = "" if epochs is None else html_table(epochs, heading=False)
    if epochs is not None and len(epochs.rows) > 12:  # noqa: PLR2004 - a screen
        shown = fold(epochs, "progress.jsonl")
    steps = steps_table(subject)
    return section("Epochs", shown + ("" if steps is None else fold(steps, "progress.jsonl")), key="epochs")


def steps_table(subject: Subject) -> Table | None:
    """Return what the curves by step are drawn from; None before the first step."""
    losses = binned((one.step, one.loss) for one in subject.steps)
    if not losses:
        return None
    depth = max(len(one.accuracy) for one in subject.steps)
    heads = ["loss", "10 to 90 %", *(f"accuracy {at + 1}" for at in range(depth)), "tokens a second", "waiting"]
    rows = []
    steps = iter(subject.steps)
    at_hand = next(steps, None)
    for one in losses:
        some = []
        while at_hand is not None and at_hand.step <= one.last:
            some.append(at_hand)
            at_hand = next(steps, None)
        means = [_mean([step.accuracy[at] for step in some if len(step.accuracy) > at]) for at in range(depth)]
        speed = _mean([step.tokens_per_s for step in some if step.tokens_per_s is not None])
        waiting = _mean([step.fetch_share for step in some if step.fetch_share is not None])
        spread = f"{one.low:.3f} to {one.high:.3f}" if one.count > 1 else NONE
        cells = (f"{one.mean:.3f}", spread, *(share(value) for value in means), cell(speed), share(waiting))
        name = f"{one.first:,}" if one.first == one.last else f"{one.first:,} to {one.last:,}"
        rows.append((name, cells))
    return plain_table("Figures by step", heads, rows)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def settings_html(subject: Subject) -> str:
    """Return the section of what is trained, and how."""
    recipe, fit = subject.recipe, subject.recipe.fit
    trained = subject.trained
    pairs = [
        ("Target", str(recipe.target)),
        ("Run folder", str(recipe.folder)),
        ("Epochs", f"at most {fit.epochs}" + (f", patience {fit.patience}" if fit.patience else "")),
        ("Batch", f"{fit.batch_tokens:,} tokens, {fit.processes} process{'' if fit.processes == 1 else 'es'}"),
        ("Optimizer", f"{fit.optimizer}, learning rate {fit.lr:g}, warm-up {fit.warmup:g} of the steps"),
        ("Training-time test", f"{fit.ttt_steps} steps"),
        ("Device", str(trained.facts.get("device", fit.device)) if trained is not None else fit.device),
        ("Seed", str(fit.seed)),
        ("Pays from", _needs(subject)),
    ]
    found = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs)
    return section("Settings", f'<dl class="facts">{found}</dl>', key="settings")


def _needs(subject: Subject) -> str:
    needs = subject.needs
    if not needs.lengths:
        return f"not known: {needs.source}"
    told = [
        f"{one.length:.2f} ({one.low:.2f} to {one.high:.2f})"
        + ("" if one.concurrency is None else f" at {one.concurrency} at a time")
        for one in needs.lengths
    ]
    return f"{', '.join(told)}; {needs.source}"
