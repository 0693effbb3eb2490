"""The predicted speed-up for a person: a table by load, and what to try first."""

import json
from collections.abc import Mapping
from typing import Any

from draftworth.predict.base import Range
from draftworth.training.speedup import METHOD, SpeedUpAt, SpeedUps


def table(found: SpeedUps) -> list[str]:
    """Return the table by load with the best k of each marked, the best k by category, and what to be careful with."""
    known = (found.costs.get(name) for name in ("engine", "version", "model", "machine"))
    server = " ".join(one for one in known if one)
    by = f"{found.costs['file']}{f' ({server})' if server else ''}"
    rows = [f"predicted speed-up, by {by}, at a context of {found.context:,} tokens:"]
    for load in found.loads:
        rows.append(f"  {load} at a time:")
        best = found.best_at(load)
        rows += [_row(one, best=one.k == best.k) for one in found.rows if one.concurrency == load]
    for name, part in found.categories.items():
        told = ", ".join(f"{_range(one.speed_up)} at {one.concurrency}" for one in part if one.k == found.best)
        if told:
            rows.append(f"  {name}, k = {found.best}: {told}")
    rows += [f"  {note}" for note in found.notes]
    return [*rows, verdict(found)]


def _row(one: SpeedUpAt, *, best: bool) -> str:
    most = "" if one.possible else f", more than the {one.k + 1} a step can give"
    return (
        f"   {'*' if best else ' '} k = {one.k}: {_range(one.length)} tokens a step, {_range(one.needed)} needed"
        f"{most}: {_range(one.speed_up)} times as fast{' (best)' if best else ''}"
    )


def verdict(found: SpeedUps) -> str:
    """Return what the prediction comes to, in a sentence: k for all loads together, and whether it pays."""
    rows = [one for one in found.rows if one.k == found.best]
    told = ", ".join(f"{_range(one.speed_up)} at {one.concurrency}" for one in rows)
    pays = [one.pays for one in rows]
    answer = (
        "it pays"
        if all(one is True for one in pays)
        else "it does not pay"
        if all(one is False for one in pays)
        else "whether it pays at each load cannot be told without a trial"
    )
    return f"predicted best k = {found.best}: {told} times as fast: {answer}"


def trial_lines(evaluated: Mapping[str, Any], exported: Mapping[str, Any]) -> list[str]:
    """Return the closing lines of `train run`: what is predicted, and the arm of a trial that checks it.

    Args:
        evaluated: facts of the stage `eval`.
        exported: facts of the stage `export`.

    Returns:
        Nothing where either stage did not run.
    """
    served = dict(exported.get("vllm") or {})
    if not served or not evaluated:
        return []
    told, why = evaluated.get("speed_up"), evaluated.get("why_no_speed_up") or "not known"
    k, first = int(served["num_speculative_tokens"]), f"predicted speed-up: {why}"
    if told is not None:
        found = SpeedUps.model_validate(told)
        k, first = found.best, verdict(found)
    then = "`draftworth train eval RECIPE --trial latest` holds walk and prediction against what it measured:"
    return [
        f"{first[:1].upper()}{first[1:]}.",
        f"Measure it: `draftworth trial run` with this arm; then {then}",
        *arm_block(str(served["model"]), k),
    ]


def arm_block(model: str, k: int) -> list[str]:
    """Return an arm of `draftworth.toml` that serves a head."""
    path = json.dumps(model, ensure_ascii=False)  # a basic string of TOML
    config = f'method = "{METHOD[0]}", model = {path}, num_speculative_tokens = {k}'
    return ["", "[[arms]]", f'name = "head-k{k}"', f"speculative_config = {{ {config} }}"]


def _range(one: Range) -> str:
    return f"{one.value:.2f} ({one.low:.2f} to {one.high:.2f})"
