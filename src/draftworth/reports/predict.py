"""A prediction, and how far predictions were off, as lines for a terminal."""

import json
import math
import shlex
from collections.abc import Sequence

from draftworth.predict.advice import describe
from draftworth.predict.base import Checked, Predicted, Prediction, Range, Reload
from draftworth.reports.words import NONE, aligned, cell, number, plural, share


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
    found += _reloads(prediction.reloads, costs.get("reload_s"))
    if prediction.mode_arms:
        found.append("What speculation itself adds to a step was not measured here; arms of one trial that measure it:")
        found += [f"  {name}: {shlex.join(words)}" for name, words in prediction.mode_arms.items()]
        found.append("")
    if prediction.per_batch_size is not None:
        told = prediction.per_batch_size
        found.append(
            f'By batch size: "num_speculative_tokens_per_batch_size": {json.dumps([list(one) for one in told.table])}'
        )
        found.append(
            f"  {math.exp(told.gain):.2f} times as fast as no speculation, mean over the loads; nothing above "
            f"{told.loads[-1]} at a time was predicted. On the V1 runner the table gives up full CUDA graphs."
        )
        found.append("")
    if prediction.heads:
        found += _heads(prediction)
    reasons = list(dict.fromkeys(why for one in prediction.settings for why in one.why))
    found += ["Costs are from:", *(f"  {why}" for why in reasons[:_MOST_REASONS])]
    if len(reasons) > _MOST_REASONS:
        found.append(f"  and {len(reasons) - _MOST_REASONS} more: --json")
    found += [f"{one['count']:,} rows left out: {one['reason']} (first: {one['first']})" for one in prediction.left_out]
    found += [f"Note: {text}" for text in prediction.findings]
    return found


_MOST_REASONS = 12


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
            describe(one),
            _range(one.speed_up),
            number(one.length_per_step),
            share(one.coverage),
            cell(one.length_per_drafting_step),
            _needed(one),
            f"{one.parts.step_ms:.2f} ms",
            f"{one.parts.verify_ms:+.2f}",
            f"{one.parts.mode_ms:+.2f}",
            NONE if one.limit == "nothing" else one.limit,
        )
        for one in ranked[:most]
    ]
    base = ranked[0].parts.base_ms
    probed = "" if ranked[0].base_measured else ", not probed: carried over from other loads"
    said = f"At {load} at a time (a step of the baseline takes {base:.2f} ms{probed}):"
    more = (
        [f"  {plural(len(ranked) - most, 'further setting')}: --top {len(ranked)}, or --json"]
        if len(ranked) > most
        else []
    )
    return [said, *aligned(rows), *more]


def _needed(one: Predicted) -> str:
    if one.break_even_length is None:
        return NONE
    return number(one.break_even_length) if one.break_even_length <= one.k + 1 else f"above {one.k + 1}"


def _range(value: Range) -> str:
    return f"{value.value:.2f} ({value.low:.2f} to {value.high:.2f})"


def _reloads(found: Sequence[Reload], reload_s: object) -> list[str]:
    if not found:
        return ["No arm deserves a reload.", ""]
    each = "" if reload_s is None else f"; one start takes about {float(str(reload_s)) / 60:.0f} min"
    said = [f"Worth a trial, the best first{each}:"]
    for one in found:
        how = shlex.join(one.arguments) or "no server of it"
        there_and_back = "" if one.seconds is None else f", at least {one.seconds / 60:.0f} min of reloads"
        said.append(f"  {_range(one.speed_up)} at {one.at} at a time{there_and_back}: {how}")
    return [*said, ""]


def _heads(prediction: Prediction) -> list[str]:
    rows = [("k", "at a time", "step", "drafting", "acceptance length per step to pay", "")]
    rows += [
        (
            str(one.k),
            str(one.concurrency),
            f"{one.step_ms:.2f} ms",
            f"{one.draft_ms:.2f} ms",
            _range(one.length),
            "" if one.possible else f"impossible: at most {one.k + 1}",
        )
        for one in prediction.heads
    ]
    return ["A head or draft model that does not exist yet must reach:", *aligned(rows), ""]


def check_lines(checked: Checked) -> list[str]:
    """Return how far predictions were off, cell by cell, for a person."""
    rows = [("trial", "arm", "at a time", "predicted", "measured", "error", "sign")]
    rows += [
        (
            one.trial,
            one.arm,
            str(one.concurrency),
            _range(one.predicted),
            _range(one.measured),
            f"{one.error:+.1%}",
            {True: "right", False: "WRONG", None: NONE}[one.sign_right],
        )
        for one in checked.cells
    ]
    found = aligned(rows) if checked.cells else []
    found += [f"left out: {text}" for text in checked.left_out]
    if checked.cells:
        middle, high = checked.median_error or 0.0, checked.p95_error or 0.0
        found.append("")
        found.append(
            f"{plural(len(checked.cells), 'cell')}: median absolute error {middle:.1%}, 95th percentile {high:.1%}, "
            f"{plural(checked.wrong_signs, 'wrong sign')} where the measured interval excludes 1"
        )
    return found
