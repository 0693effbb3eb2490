"""What the page of a training says in sentences: where it stands, how long it takes, what must be looked at."""

import math
from collections.abc import Sequence

from draftworth.reports.page import Tile
from draftworth.reports.training.base import Subject
from draftworth.reports.training.figures import Step
from draftworth.reports.words import number, percent, plural, sentence
from draftworth.training.base import StageName
from draftworth.trials.progress import duration

SMOOTHED = 20
"""Lines of steps that a figure of now is the mean of."""
_WAITING = 0.2
"""Share of the time that waiting for data may take before it is told."""
_AGAIN = "What was done is kept, and the same command goes on; of the training at most five minutes are lost."


def headline(subject: Subject) -> str:
    """Return where the training stands, in a line."""
    status, stage = subject.standing.status, subject.standing.stage
    if subject.trained is not None:
        after = f"; the stage {stage} {_did(status)}" if stage is not None and _behind(stage, status) else ""
        return f"{_ended(subject)}{after}"
    if status == "failed":
        return f"The training failed{_where(subject)}"
    if status == "interrupted":
        return f"The training was interrupted{_where(subject)}"
    return f"Training{_where(subject, ': ')}" if subject.steps or subject.epochs else "The training is being prepared"


def _did(status: str) -> str:
    return {"failed": "failed", "interrupted": "was interrupted"}.get(status, "runs")


def _behind(stage: StageName, status: str) -> bool:
    """Whether a stage behind the training is at hand."""
    names = list(StageName)
    return status != "done" and names.index(stage) > names.index(StageName.FIT)


def _ended(subject: Subject) -> str:
    epochs = subject.recipe.fit.epochs
    if stopped_early(subject):
        return f"Trained: ended early after {len(subject.epochs)} of {plural(epochs, 'epoch')}"
    return f"Trained: {plural(len(subject.epochs), 'epoch')}"


def stopped_early(subject: Subject) -> bool:
    """Whether the training ended because the walk no longer rose."""
    return subject.trained is not None and bool(subject.trained.facts.get("stopped_early"))


def _where(subject: Subject, before: str = " in ") -> str:
    """Return the epoch and the step; nothing before the first."""
    if not subject.done:
        return " before its first step"
    total = subject.total
    ended = subject.epochs[-1].epoch + 1 if subject.epochs else 0
    epoch = max(ended, subject.steps[-1].epoch + 1) if subject.steps else ended
    of = f" of about {total:,}" if total is not None and subject.standing.status == "running" else ""
    return f"{before}epoch {epoch} of {subject.recipe.fit.epochs}, step {subject.done:,}{of}"


def lede(subject: Subject) -> list[str]:
    """Return what follows the headline: why it ended, or what happens now and for how long; then what came of it."""
    standing = subject.standing
    found: list[str] = []
    if standing.status == "failed":
        found += [sentence(standing.reason or "No reason is known"), _AGAIN]
    elif standing.status == "interrupted":
        found.append(_AGAIN)
    elif stopped_early(subject):
        best, last = subject.best, subject.epochs[-1].epoch + 1 if subject.epochs else 0
        since = "" if best is None else f" in the {plural(last - best.epoch - 1, 'epoch')} since epoch {best.epoch + 1}"
        found.append(f"No walk was longer{since} (fit.patience = {subject.recipe.fit.patience}); the best is kept.")
    if standing.status == "running":
        found += [sentence(f"Now: {standing.now}")] if standing.now else []
        found += [time_words(subject)] if subject.fitting else []
    return [*found, *length_words(subject)]


def time_words(subject: Subject) -> str:
    """Return how long the training still takes, with what that assumes."""
    left = subject.left
    if left is None:
        return "How long it takes is told once some steps are done."
    fit = subject.recipe.fit
    said = f"About {duration(left.seconds)} left, if all {plural(fit.epochs, 'epoch')} are trained at the pace of the"
    said += f" last {plural(left.steps, 'step')} ({number(left.each_s)} s each)"
    if left.end_s is None:
        said += ", without what follows each epoch (held-out loss, walk, checkpoint), which was not timed yet"
    else:
        said += f", with {number(left.end_s)} s at each epoch's end (held-out loss, walk, checkpoint)"
    if fit.patience:
        said += f". It ends earlier where {plural(fit.patience, 'epoch')} in a row bring no longer walk"
    return f"{said}."


def length_words(subject: Subject) -> list[str]:
    """Return what the longest walk is beside the length that pays."""
    best, least, k = subject.best, subject.needs.least, subject.recipe.fit.ttt_steps
    needed = ""
    if least is not None:
        at = "" if least.concurrency is None else f" at {least.concurrency} at a time"
        needed = f"{least.length:.2f}{at}"
        if not least.possible:
            needed += f", which no head of k = {k} can reach (at most {k + 1})"
    if best is None or best.length is None:
        told = [f"To pay, the head must reach {needed}."] if needed else []
        return [*(["No held-out conversation was long enough to be walked."] if subject.epochs else []), *told]
    said = f"Longest walk on held-out conversations: {best.length:.2f} tokens per drafting step at k = {best.k}"
    said += f", epoch {best.epoch + 1}"
    if least is None:
        return [f"{said}. What it must reach to pay is not known: {subject.needs.source}."]
    above = "more" if best.length > least.high else "not more" if best.length < least.low else "about as much"
    return [f"{said}; {above} than what pays ({needed})." if above != "about as much" else f"{said}; {needed} pays."]


def tiles_of(subject: Subject) -> list[Tile]:
    """Return the key figures."""
    best, least, now = subject.best, subject.needs.least, subject.steps[-SMOOTHED:]
    found = []
    if best is not None and best.length is not None:
        about = f"longest walk, epoch {best.epoch + 1}, k = {best.k}"
        about += f"; pays from {least.length:.2f}" if least is not None else ""
        found.append(Tile("Acceptance length", f"{best.length:.2f}", "tokens", about))
    losses = [one.loss for one in now]
    if losses:
        held_out = next((one.loss for one in reversed(subject.epochs) if one.loss is not None), None)
        about = f"mean of the last {plural(len(losses), 'line')}"
        about += f"; held out: {_figure(held_out)}" if held_out is not None else ""
        found.append(Tile("Loss", _figure(sum(losses) / len(losses)), "", about))
    total = subject.total
    if subject.fitting and total:
        about = f"step {subject.done:,} of about {total:,}"
        found.append(Tile("Done", percent(min(1.0, subject.done / total)), "", about))
        left = subject.left
        if left is not None:
            found.append(Tile("Time left", duration(left.seconds), "", "at most, see above"))
    elif subject.trained is not None:
        found.append(Tile("Took", duration(subject.trained.seconds), "", f"{subject.done:,} steps, the last process"))
    speeds = [one.tokens_per_s for one in now if one.tokens_per_s is not None]
    if speeds:
        shares = [one.fetch_share for one in now if one.fetch_share is not None]
        about = f"{percent(sum(shares) / len(shares))} of the time waiting for data" if shares else ""
        found.append(Tile("Speed", number(sum(speeds) / len(speeds)), "tokens/s", about))
    return found


def _figure(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else str(value)


def findings_of(subject: Subject) -> list[tuple[str, str]]:
    """Return what must be looked at: severity (breach, warning, info) and a sentence."""
    found: list[tuple[str, str]] = []
    broken = [one for one in subject.steps if not math.isfinite(one.loss)]
    if broken:
        many = f"{plural(len(broken), 'line')} of {len(subject.steps):,}, first at step {broken[0].step:,}"
        now = subject.steps[-1] is broken[-1]
        advice = (
            "It does not recover from that: end it, lower fit.lr, and look for states that are not finite."
            if now
            else "It went on with finite losses; the plots leave those steps out."
        )
        found.append(("breach" if now else "warning", f"The loss was no number ({many}). {advice}"))
    wrong = [one.epoch + 1 for one in subject.epochs if one.loss is not None and not math.isfinite(one.loss)]
    if wrong:
        epochs = ", ".join(map(str, wrong[:8]))
        found.append(("breach", f"The held-out loss was no number after epoch {epochs}."))
    waiting = waited(subject.steps)
    if waiting is not None and waiting > _WAITING:
        text = f"Steps wait {percent(waiting)} of their time for data: the states are read too slowly."
        found.append(("warning", f"{text} A faster disk, or states that fit the memory, shorten the training."))
    if subject.unread:
        text = f"{plural(subject.unread, 'line')} of progress.jsonl could not be understood and are left out."
        found.append(("warning", text))
    return found


def waited(steps: Sequence[Step]) -> float | None:
    """Return the mean share of a step that it waits for data; None where none was timed."""
    shares = [one.fetch_share for one in steps if one.fetch_share is not None]
    return sum(shares) / len(shares) if shares else None
