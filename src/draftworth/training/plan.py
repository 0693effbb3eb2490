"""`train plan`: what the head must reach, what it costs to find out, and what others reached. Refuses nothing.

Every figure has its formula and source; what is assumed is said. Nothing is run: config.json, an earlier prediction
and, where the stage `data` has run, its counts are read.
"""

from draftworth.costs.paper.config import read_shape
from draftworth.costs.paper.gpus import gpu as named_gpu
from draftworth.models import Frozen
from draftworth.training import costing
from draftworth.training.base import StageName
from draftworth.training.needed import NeededLength, needed, verdict
from draftworth.training.plan_notes import FORWARD_SHARE, READ_GB_S, TRAINING_SHARE, findings, formulas, published
from draftworth.training.recipe import Recipe
from draftworth.training.stages import read_manifest
from draftworth.training.target import config_fields, vocabulary_of
from draftworth.training.vocab import USUAL

SCHEMA_VERSION = 1
SIZES = (5_000, 50_000, 500_000)
"""Samples of the plan's further rows: a test of the pipeline, what small projects take, what is advised."""
WINDOW = 2048
"""Tokens that the head's layer attends to: speculators 0.9's default (`sliding_window`)."""


class Span(Frozen):
    """A figure between two bounds."""

    low: float
    high: float


class Scenario(Frozen):
    """What one amount of data costs."""

    name: str
    """What the amount is."""
    samples: int
    tokens: int
    assumed: bool
    """Whether its tokens are the assumed mean and not counted."""
    state_bytes: int
    """Disk of the states."""
    states_hours: Span
    """GPU hours of the target's forward pass, both kinds of sample."""
    training_hours: Span
    """GPU hours of training."""
    reading_hours: float
    """Hours of reading the states from disk, once an epoch; training takes no less."""
    answer_hours: float | None
    """Hours of writing the answers anew, all of the server; None where its speed is not told."""
    price: Span | None
    """Of states and training together; None where no price is told."""


class TrainingPlan(Frozen):
    """Everything `draftworth train plan` tells."""

    schema_version: int = SCHEMA_VERSION
    target: str
    architecture: str | None
    hidden: int
    layers: int
    vocabulary: int
    head_parameters: int
    """Trained ones."""
    draft_vocabulary: int
    aux_layers: tuple[int, ...]
    gpu: str
    gpus: int
    needed: tuple[NeededLength, ...]
    needed_from: str
    """Where the needed lengths come from; what to run where there are none."""
    scenarios: tuple[Scenario, ...]
    published: tuple[str, ...]
    """Results of others near this setting, with their sources."""
    verdict: str
    """What the needed length means beside the published ones."""
    formulas: tuple[str, ...]
    findings: tuple[str, ...]


def make_plan(recipe: Recipe) -> TrainingPlan:
    """Return the plan of a recipe.

    Raises:
        UsageError: config.json or the prediction cannot be read, or the GPU is not known.
    """
    shape = read_shape(recipe.target)
    fields = config_fields(recipe.target)
    card = named_gpu(recipe.plan.gpu)
    aux = recipe.states.layers or default_layers(shape.layers)
    vocabulary = vocabulary_of(recipe.target)
    head = costing.HeadShape(
        hidden=shape.hidden,
        intermediate=fields.number("intermediate_size") or 4 * shape.hidden,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        aux=len(aux),
        vocabulary=_draft_vocabulary(recipe, vocabulary),
        window=WINDOW,
    )
    lengths, needed_from = needed(recipe)
    architecture = next(iter(fields.config.get("architectures") or ()), None)
    scenarios = tuple(
        _scenario(recipe, head, shape.active_parameters, card.bf16_tflops, amount) for amount in _amounts(recipe)
    )
    return TrainingPlan(
        target=str(recipe.target),
        architecture=architecture,
        hidden=shape.hidden,
        layers=shape.layers,
        vocabulary=vocabulary,
        head_parameters=head.parameters,
        draft_vocabulary=head.vocabulary,
        aux_layers=aux,
        gpu=card.name,
        gpus=recipe.plan.gpus,
        needed=lengths,
        needed_from=needed_from,
        scenarios=scenarios,
        published=published(recipe.plan.k),
        verdict=verdict(lengths, recipe.plan.k),
        formulas=formulas(recipe, head),
        findings=findings(recipe, architecture, shape, aux, {one.name: one.state_bytes for one in scenarios}),
    )


def default_layers(layers: int) -> tuple[int, ...]:
    """Return how many layers are applied in front of each auxiliary state: 2, half, all but three.

    vLLM 0.32 (`get_eagle3_default_aux_hidden_state_layers`) and speculators 0.9 take them. With fewer than seven layers
    they are not three different ones.
    """
    return (2, layers // 2, layers - 3)


def _draft_vocabulary(recipe: Recipe, vocabulary: int) -> int:
    """Return how many tokens the head can draft: as chosen, where that has been done."""
    done = read_manifest(StageName.VOCAB.folder(recipe.folder))
    chosen = None if done is None else done.counts.get("size")
    return recipe.vocab.size or chosen or min(USUAL, vocabulary)


def _amounts(recipe: Recipe) -> list[tuple[str, int, int, bool]]:
    """Return name, samples, tokens and whether those are assumed."""
    done = read_manifest(StageName.DATA.folder(recipe.folder))
    mean = recipe.plan.sample_tokens
    found: list[tuple[str, int, int, bool]] = []
    if done is not None:
        samples = done.counts.get("train_samples", 0) + done.counts.get("held_out_samples", 0)
        tokens = done.counts.get("train_tokens", 0) + done.counts.get("held_out_tokens", 0)
        found.append(("this data", samples, tokens, False))
        mean = max(1, round(tokens / max(1, samples)))
    return [*found, *((f"{size:,} samples", size, size * mean, True) for size in SIZES)]


def _scenario(
    recipe: Recipe, head: costing.HeadShape, active: int, tflops: float, amount: tuple[str, int, int, bool]
) -> Scenario:
    name, samples, tokens, assumed = amount
    forward = costing.states_flops(tokens, active)
    training = costing.training_flops(
        tokens, head, epochs=recipe.fit.epochs, steps=recipe.fit.ttt_steps, context=tokens / max(1, samples)
    )
    states_hours, training_hours = _hours(forward, tflops, FORWARD_SHARE), _hours(training, tflops, TRAINING_SHARE)
    price, speed = recipe.plan.price, recipe.plan.tokens_per_second
    size = round(costing.state_bytes(tokens, head.hidden, head.aux, recipe.states.dtype))
    return Scenario(
        name=name,
        samples=samples,
        tokens=tokens,
        assumed=assumed,
        state_bytes=size,
        states_hours=states_hours,
        training_hours=training_hours,
        reading_hours=recipe.fit.epochs * size / (READ_GB_S * 1e9) / 3600,
        answer_hours=None if speed is None else tokens / speed / 3600,
        price=None
        if price is None
        else Span(
            low=price * (states_hours.low + training_hours.low), high=price * (states_hours.high + training_hours.high)
        ),
    )


def _hours(flops: float, tflops: float, shares: tuple[float, float]) -> Span:
    return Span(low=costing.gpu_hours(flops, tflops, shares[1]), high=costing.gpu_hours(flops, tflops, shares[0]))
