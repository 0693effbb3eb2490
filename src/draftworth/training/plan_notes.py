"""What a plan says beside its figures: how they are computed, what cannot work, what others reached and spent."""

from collections.abc import Mapping

from draftworth.costs.paper.config import ModelShape
from draftworth.heads.architectures import AUXILIARY, READ, REGISTERED
from draftworth.training import costing
from draftworth.training.recipe import Recipe
from draftworth.training.scaling import scaling

TRAINING_SHARE = (0.1, 0.4)
FORWARD_SHARE = (0.2, 0.6)
"""Shares of a GPU's dense BF16 peak that training and a forward pass reach: assumptions, from a small trainer that is
not tuned to a well-tuned one; not measured here."""
READ_GB_S = 2.0
"""What a disk reads, in 10^9 bytes a second: an assumption, that of a usual NVMe disk."""
SMALL = 2048
"""Width below which a target's matrices do not fill a GPU of a data centre: an assumption."""
DRAFTED_LAYERS = 7
"""Fewest layers for three different default auxiliary layers (2, half, all but three)."""


def published(k: int) -> tuple[str, ...]:
    """Return the published results, those of as many drafted tokens first, one line each."""
    near = sorted(scaling().results, key=lambda one: (one.k != k, one.tree, one.billions))
    return tuple(
        f"{one.target}, {one.head}"
        f"{'' if one.samples is None else f', {one.samples:,} samples'}, "
        f"{'k not told' if one.k is None else f'k = {one.k}'}{', a tree' if one.tree else ''}: "
        f"{', '.join(f'{name} {length:.2f}' for name, length in one.lengths.items())} ({one.source})"
        for one in near
    )


def formulas(recipe: Recipe, head: costing.HeadShape) -> tuple[str, ...]:
    """Return how the figures of a plan are computed, one line each."""
    fit = recipe.fit
    return (
        (
            f"disk of the states = tokens x (({head.aux} + 1) x {head.hidden} x bytes of {recipe.states.dtype} + "
            f"{costing.ID_BYTES} for the id{' + 4 for the scale' if recipe.states.dtype == 'fp8' else ''}) "
            "(layout of speculators 0.9)"
        ),
        "FLOPs of the states = 2 x active parameters x tokens (Kaplan et al., arXiv 2001.08361), attention left out",
        (
            f"FLOPs of training = {fit.epochs} epochs x tokens x [{fit.ttt_steps} steps x (6 x "
            f"{head.layer_parameters:,} of the layer + 4 x {head.output_parameters:,} of the output + attention) "
            f"+ 6 x {head.fc_parameters:,} of the projection + 2 x {head.output_parameters:,} of the teacher]"
        ),
        (
            "GPU hours = FLOPs / (dense BF16 peak of the data sheet x share); shares are assumed: "
            f"{FORWARD_SHARE[0]:.0%} to {FORWARD_SHARE[1]:.0%} of the forward pass, {TRAINING_SHARE[0]:.0%} to "
            f"{TRAINING_SHARE[1]:.0%} of training"
        ),
        f"reading = {fit.epochs} epochs x disk of the states / {READ_GB_S:g} GB/s, assumed",
    )


def findings(
    recipe: Recipe, architecture: str | None, shape: ModelShape, aux: tuple[int, ...], sizes: Mapping[str, int]
) -> tuple[str, ...]:
    """Return what cannot work, what is advised, and what it took others, one line each.

    Args:
        recipe: the recipe.
        architecture: the target's; None where config.json names none.
        shape: the target's.
        aux: how many layers are applied in front of each auxiliary state.
        sizes: bytes of the states, by amount of data.
    """
    said: list[str] = []
    release, layers = READ[-1], shape.layers
    name = ".".join(map(str, release))
    if architecture is None:
        said.append("config.json names no architecture: whether an engine serves EAGLE-3 heads with it is not known")
    elif architecture in REGISTERED[release] and architecture not in AUXILIARY[release]:
        some = ", ".join(sorted(AUXILIARY[release]))
        said.append(f"vLLM {name} serves {architecture} without EAGLE-3 heads; those it serves them with: {some}")
    elif architecture not in REGISTERED[release]:
        said.append(f"vLLM {name} has no class of its own for {architecture}: try one start with a public head first")
    if layers < DRAFTED_LAYERS and recipe.states.layers is None:
        said.append(
            f"{layers} layers are too few for the default auxiliary layers {aux}: write states.layers, three different "
            "ones"
        )
    if any(not 0 <= one < layers for one in aux):
        said.append(f"auxiliary layers {aux}: each must be from 0 to {layers - 1}")
    if shape.hidden < SMALL:
        said.append(
            f"a target of width {shape.hidden}: its kernels are too small for the shares that are assumed, so hours "
            "are lower bounds"
        )
    limit = recipe.states.disk_gib
    said += [
        f"{amount}: states of {size / 2**30:,.0f} GiB do not fit states.disk_gib = {limit:g}; fp8 halves them"
        for amount, size in sizes.items()
        if limit is not None and size > limit * 2**30
    ]
    efforts = [
        f"{one.what}, {one.samples:,} samples: {one.hours:,.4g} {one.gpu} hours"
        f"{'' if one.length is None else f', reached {one.length:.2f}'} ({one.source})"
        for one in scaling().efforts
    ]
    return (*said, f"advised: {scaling().advice}", *scaling().warnings, *efforts)
