"""A prediction, and how far predictions were off, as lines for a terminal."""

import json
import math
import shlex
from collections.abc import Mapping, Sequence

from draftworth.predict.advice import AT_BEST, MARGIN, duration
from draftworth.predict.base import Checked, CheckedCell, Needed, Predicted, Prediction, Range, Reload, Source
from draftworth.predict.settings import common, describe, window
from draftworth.reports.words import NONE, aligned, cell, mean, number, plural, share


def lines(prediction: Prediction, *, most: int = 10) -> list[str]:
    """Return a prediction for a person: the answer, the table at each load, what to reload, what is assumed.

    Args:
        prediction: what was predicted.
        most: rows of the table at each load.
    """
    trace, costs = prediction.trace, prediction.costs
    asked = f"{trace['path']}: {plural(int(str(trace['requests'])), 'request')}, {prediction.drafter}"
    engine = " ".join(str(part) for part in (costs["engine"], costs["version"]) if part) or "an unknown engine"
    found = [asked, f"Costs of {costs['created']}: {engine}, {costs['model'] or 'model not known'}", ""]
    found += [prediction.verdict, ""]
    loads = sorted({one.concurrency for one in prediction.settings})
    for load in loads:
        found += [*_at(load, [one for one in prediction.settings if one.concurrency == load], most), ""]
    same = common(prediction.settings)
    found += [*(f"{text}." for text in same), ""] if same else []
    found += _reloads(prediction)
    found += _mode_arms(prediction)
    found += _schedule(prediction)
    if prediction.heads:
        found += _heads(prediction)
    found += _sources(prediction.settings)
    found += [f"{one['count']:,} rows left out: {one['reason']} (first: {one['first']})" for one in prediction.left_out]
    found += [f"Note: {text}" for text in prediction.findings]
    return found


_MOST_SOURCES = 3
_MOST_STEPS = 2


def _at(load: int, predicted: Sequence[Predicted], most: int) -> list[str]:
    ranked = sorted(predicted, key=lambda one: -one.speed_up.value)
    rows = [
        (
            "setting",
            "speed-up",
            "tokens per step",
            "drafting",
            "length",
            "break-even",
            "step",
            "verify",
            "mode",
            "limit",
        )
    ]
    rows += [
        (
            describe(one, predicted),
            f"{AT_BEST}, {_range(one.speed_up)}" if one.at_best else _range(one.speed_up),
            _tokens(one),
            share(one.coverage),
            cell(one.length_per_drafting_step),
            _needed(one),
            f"{one.parts.step_ms:.2f} ms",
            f"{one.parts.verify_ms:+.2f}",
            "not known" if one.parts.mode_ms is None else f"{one.parts.mode_ms:+.2f}",
            NONE if one.limit == "nothing" else one.limit,
        )
        for one in ranked[:most]
    ]
    base = ranked[0].parts.base_ms
    probed = "" if ranked[0].base_measured else ", not probed at this load and context: carried over"
    p = ranked[0].prefill_ms
    shared = f"; prefills of others add {_range(p)} ms to each token" if p is not None and p.high > 0 else ""
    said = f"At {load} at a time (a step of the baseline takes {base:.2f} ms{probed}{shared}):"
    more = (
        [f"  {plural(len(ranked) - most, 'further setting')}: --top {len(ranked)}, or --json"]
        if len(ranked) > most
        else []
    )
    return [said, *aligned(rows), *more]


def _tokens(one: Predicted) -> str:
    """Return tokens per step with their interval, above which no speed-up lies."""
    steps = one.steps_per_token
    return mean(one.length_per_step, 1 / steps.high, 1 / steps.low)


def _needed(one: Predicted) -> str:
    if one.break_even_length is None:
        return NONE
    return number(one.break_even_length) if one.break_even_length <= one.k + 1 else f"above {one.k + 1}"


def _range(value: Range) -> str:
    return f"{value.value:.2f} ({value.low:.2f} to {value.high:.2f})"


def _reloads(prediction: Prediction) -> list[str]:
    """Return the settings to reload, each with its flags; nothing where the answer names none."""
    found, reload_s = prediction.reloads, prediction.costs.get("reload_s")
    if not found:
        return []
    each = "" if reload_s is None else f"; one start takes about {duration(float(str(reload_s)))}"
    said = [f"{_title(found)}, the best first{each}:"]
    for one in found:
        how = shlex.join(one.arguments) or "a parameter of `generate`: no server has it"
        there_and_back = "" if one.seconds is None else f", at least {duration(one.seconds)} of reloads"
        said.append(
            f"  {describe(one, prediction.settings)}: {_range(one.speed_up)} at {one.at} at a time{there_and_back}"
        )
        said.append(f"    {how}")
    return [*said, ""]


def _title(found: Sequence[Reload]) -> str:
    """Return what the list is: what was predicted to pay, or what only a trial can tell."""
    return "Worth a trial" if any(one.speed_up.low > 1 + MARGIN for one in found) else "Only a trial can tell of"


def _mode_arms(prediction: Prediction) -> list[str]:
    if not prediction.mode_arms:
        return []
    said = ["What speculation itself adds to a step was not measured here; arms of one trial that measure it:"]
    said += [f"  {name}: {shlex.join(words)}" for name, words in prediction.mode_arms.items()]
    return [*said, ""]


def _schedule(prediction: Prediction) -> list[str]:
    told = prediction.per_batch_size
    if told is None:
        return []
    table = json.dumps([list(one) for one in told.table])
    off = f"{told.loads[0]} to {told.loads[-1]}" if len(told.loads) > 1 else f"{told.loads[0]}"
    left = ""
    if told.unsure:
        left = f" Left out, as no k is faster there beyond doubt: {', '.join(map(str, told.unsure))} at a time."
    said = (
        f"  {math.exp(told.gain):.2f} times as fast as no speculation, mean over the loads. Outside of {off} at a time "
        f"nothing was predicted, and the table drafts nothing (vLLM carries the last k on).{left} On the V1 runner the "
        "table gives up full CUDA graphs."
    )
    whose = f"{told.drafter}, {window(told)}" if told.drafter else window(told)
    how = shlex.join(told.arguments) or f'"num_speculative_tokens_per_batch_size": {table}'
    return [f"k by batch size ({whose}):", f"  {how}", said, ""]


def _heads(prediction: Prediction) -> list[str]:
    rows = [("k", "at a time", "step", "drafting", "acceptance length per step to pay", "")]
    rows += [
        (
            str(one.k),
            str(one.concurrency),
            f"{one.step_ms:.2f} ms",
            f"{one.draft_ms:.2f} ms",
            *_to_pay(one),
        )
        for one in prediction.heads
    ]
    return ["A head or draft model that does not exist yet must reach:", *aligned(rows), ""]


def _to_pay(one: Needed) -> tuple[str, str]:
    """Return the length a draft must reach, cut at what it can reach, and what lies beyond."""
    most, length = one.k + 1, one.length
    if not one.possible:
        return f"above {most}", f"cannot pay: {number(length.low)} or more is needed, {most} is the most"
    if length.high <= most:
        return _range(length), ""
    value = number(length.value) if length.value <= most else f"above {most}"
    return f"{value} ({length.low:.2f} to {most})", "or it cannot pay"


def _sources(settings: Sequence[Predicted]) -> list[str]:
    """Return where the costs are from: at most three sources, the engine's mode first, then those of most steps."""
    groups: dict[str, dict[str, int]] = {}
    for one in settings:
        for reason in one.why:
            of, _, text = reason.partition(": ")
            here = groups.setdefault(text or of, {})
            here[of] = here.get(of, 0) + 1
    if not groups:
        return []
    ranked = sorted(groups.items(), key=lambda one: (not _is_mode(one[1]), -sum(one[1].values())))
    modes = [one for one in ranked if _is_mode(one[1])][:1]
    shown = [*modes, *(one for one in ranked if one not in modes and not _is_mode(one[1]))][:_MOST_SOURCES]
    said = ["Costs are from:"]
    for text, steps in shown:
        names = sorted(steps, key=lambda name: -steps[name])
        more = f" and {len(names) - _MOST_STEPS} more" if len(names) > _MOST_STEPS else ""
        said.append(f"  {'; '.join(names[:_MOST_STEPS])}{more}: {text}")
    if len(groups) > len(shown):
        said.append(f"  and {plural(len(groups) - len(shown), 'further source')}: --json")
    return said


def _is_mode(steps: Mapping[str, int]) -> bool:
    return any(name.startswith("engine mode") for name in steps)


_SOURCES: Mapping[Source, str] = {
    "replay": "predicted from the baseline's answers",
    "remembered": "also from what the arm's server had answered to the same prompts before (a benchmark's gain)",
    "synthetic": "predicted from the arm's own counts: costs alone",
}


def _off(one: CheckedCell) -> str:
    """Return how far T(B, 1) is from the baseline's TPOT."""
    if one.base_ms is None or not one.measured_base_ms:
        return NONE
    return f"{one.base_ms / one.measured_base_ms - 1:+.1%}"


def check_lines(checked: Checked) -> list[str]:
    """Return how far predictions were off, cell by cell, for a person."""
    rows = [("trial", "arm", "at a time", "predicted", "measured", "error", "sign", "prompts", "T, of the baseline's")]
    rows += [
        (
            one.trial,
            one.arm,
            str(one.concurrency),
            _range(one.predicted),
            _range(one.measured),
            f"{one.error:+.1%}",
            {True: "right", False: "WRONG", None: NONE}[one.sign_right],
            str(one.prompts),
            NONE
            if one.base_ms is None or not one.measured_base_ms
            else f"{one.base_ms / one.measured_base_ms - 1:+.1%}",
        )
        for one in checked.cells
    ]
    found = aligned(rows) if checked.cells else []
    found += [f"left out: {text}" for text in checked.left_out]
    found += [f"finding: {text}" for text in checked.findings]
    found.append("")
    if not checked.cells:
        return [*found, "No arm could be judged."]
    for one in checked.pools:
        found.append(
            f"{plural(one.cells, 'cell')}: median absolute error {one.median_error:.1%}, 95th percentile "
            f"{one.p95_error:.1%}, {plural(one.wrong_signs, 'wrong sign')} where the measured interval excludes 1; "
            f"{_SOURCES[one.source]}"
        )
        found.append(
            f"  {one.inside} of {one.cells} measured in the predicted interval; upper over lower end {one.width:.2f} "
            f"(median; measured {one.measured_width:.2f}); {one.decides} decided beyond {MARGIN:.0%} (measured "
            f"{one.measured_decides})"
        )
    return found
