"""A training plan as lines for a terminal."""

from draftworth.reports.words import aligned
from draftworth.training.needed import NeededLength
from draftworth.training.plan import Scenario, Span, TrainingPlan


def lines(plan: TrainingPlan) -> list[str]:
    """Return a plan for a person: the answer, what it must reach, what it costs, what others reached, the formulas."""
    named = plan.architecture or "no architecture named"
    behind = ", ".join(map(str, plan.aux_layers))
    million = plan.head_parameters / 1e6
    return [
        f"{plan.target}: {named}, {plan.layers} layers of width {plan.hidden:,}, {plan.vocabulary:,} tokens",
        f"The head: {million:,.1f} M trained parameters, {plan.draft_vocabulary:,} tokens, reads layers {behind}",
        "",
        plan.verdict,
        f"Needed acceptance length: {plan.needed_from}",
        *(f"  {_needed(one)}" for one in plan.needed),
        "",
        f"What it costs ({plan.gpus} x {plan.gpu}; hours of one GPU):",
        *(f"  {line}" for line in _table(plan)),
        "",
        "Published, not ours:",
        *(f"  {one}" for one in plan.published),
        "",
        "How it is computed:",
        *(f"  {one}" for one in plan.formulas),
        "",
        *(f"Note: {one}" for one in plan.findings),
    ]


def _needed(one: NeededLength) -> str:
    where = [f"k = {one.k}"] if one.k is not None else []
    where += [f"{one.concurrency} at a time"] if one.concurrency is not None else []
    span = "" if one.low == one.high else f" ({one.low:.2f} to {one.high:.2f})"
    return f"{', '.join(where)}: {one.length:.2f}{span}{'' if one.possible else ', more than a step can yield'}"


def _table(plan: TrainingPlan) -> list[str]:
    priced = any(one.price for one in plan.scenarios)
    answered = any(one.answer_hours is not None for one in plan.scenarios)
    head = ["data", "tokens", "states on disk", "states", "training", "on all GPUs", "reading"]
    head += ["answers anew"] if answered else []
    head += ["price"] if priced else []
    return aligned([tuple(head), *(_row(one, plan.gpus, answered=answered, priced=priced) for one in plan.scenarios)])


def _row(one: Scenario, gpus: int, *, answered: bool, priced: bool) -> tuple[str, ...]:
    both = Span(
        low=(one.states_hours.low + one.training_hours.low) / gpus,
        high=(one.states_hours.high + one.training_hours.high) / gpus,
    )
    row = [
        one.name,
        f"{one.tokens / 1e6:,.1f} M{' assumed' if one.assumed else ''}",
        f"{one.state_bytes / 2**30:,.1f} GiB",
        _hours(one.states_hours),
        _hours(one.training_hours),
        _hours(both),
        f"{_one(one.reading_hours)} h",
    ]
    if answered:
        row.append("not known" if one.answer_hours is None else f"{one.answer_hours:,.1f} h")
    if priced:
        row.append("not known" if one.price is None else f"{_one(one.price.low)} to {_one(one.price.high)}")
    return tuple(row)


def _hours(span: Span) -> str:
    return f"{_one(span.low)} to {_one(span.high)} h"


def _one(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 10 else f"{figure:.1f}" if figure >= 0.1 else f"{figure:.2g}"  # noqa: PLR2004
