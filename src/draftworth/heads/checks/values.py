"""The values themselves: NaN, infinities, constants, and weights that are still as they were initialised."""

import math

from draftworth.heads.statistics import Statistics
from draftworth.heads.subject import OWN, CannotCheckError, Check, Fine, Outcome, Severity, Subject, Wrong

_MOST_SHOWN = 4
_FEWEST = 4096
"""Values from which on a distribution's shape can be told: the kurtosis of 4096 has a standard error of 0.08."""
_NORMAL, _UNIFORM = 3.0, 1.8
"""Kurtosis."""
_ERRORS = 4.0
"""Values from which on a shape can be told: the kurtosis of 4096 normal ones has a standard error of 0.08."""
_LEAST_OFF = 0.01
"""What it may lie off however large the sample."""
_INITIALISER = 0.02
"""`initializer_range` of Transformers' configs, where none is told."""


def finite(subject: Subject) -> Outcome:
    """No NaN and no infinity."""
    bad = [f"{one.tensor.name} ({one.bad} of {one.count} values)" for one in subject.statistics if one.bad]
    if bad:
        return Wrong(_listed(bad), "numbers")
    read = sum(one.count for one in subject.statistics)
    total = sum(one.size for one in subject.tensors.values() if one.is_floating)
    return Fine(f"{read:,} of {total:,} values read, of {len(subject.statistics)} tensors", "numbers")


def varied(subject: Subject) -> Outcome:
    """No matrix is zero or one value throughout, and no norm is zero."""
    bad = []
    for one in subject.statistics:
        name, is_matrix = one.tensor.name, len(one.tensor.shape) > 1
        if one.is_constant and one.count > 1 and (is_matrix or (one.low == 0 and not name.endswith("bias"))):
            bad.append(f"{name} is {one.low:g} throughout")
    return Wrong(_listed(bad), "weights that were trained") if bad else Fine("no tensor is one value throughout")


def norms_trained(subject: Subject) -> Outcome:
    """The norms are not all as they were initialised."""
    norms = [one for one in subject.statistics if "norm" in one.tensor.name and len(one.tensor.shape) == 1]
    if not norms:
        return None
    moved = sum(not (one.is_constant and one.low == 1) for one in norms)
    if not moved:
        return Wrong(f"all {len(norms)} norms are 1 throughout", "norms that training has moved")
    return Fine(f"{moved} of {len(norms)} norms are not 1 throughout")


def initialised(subject: Subject) -> Outcome:
    """No matrix has the distribution of a fresh one."""
    spread = subject.draft.config.get("initializer_range")
    spread = spread if isinstance(spread, float) and spread > 0 else _INITIALISER
    matrices = [one for one in subject.statistics if len(one.tensor.shape) > 1 and one.count >= _FEWEST]
    if not matrices:
        raise CannotCheckError(f"no matrix has {_FEWEST} values")
    bad = [f"{one.tensor.name} ({kind})" for one in matrices if (kind := _fresh(one, spread))]
    expected = "distributions that training has changed"
    return Wrong(_listed(bad), expected) if bad else Fine(f"{len(matrices)} matrices", expected)


def _fresh(one: Statistics, spread: float) -> str | None:
    """Return which initialiser a matrix looks like fresh from; none where it looks trained.

    Normal with `initializer_range` as Transformers does, or uniform up to 1/sqrt(inputs) as `torch.nn.Linear` does.
    """
    if one.bad or math.isnan(one.kurtosis) or abs(one.mean) > _ERRORS * one.deviation / math.sqrt(one.count):
        return None
    shape_off = max(_LEAST_OFF, _ERRORS * math.sqrt(24 / one.count))
    size_off = max(_LEAST_OFF, _ERRORS / math.sqrt(2 * one.count))
    if abs(one.kurtosis - _NORMAL) < shape_off and abs(one.deviation / spread - 1) < size_off:
        return f"normal, standard deviation {one.deviation:.4f}"
    bound = 1 / math.sqrt(one.tensor.shape[-1])
    largest = max(abs(one.low), abs(one.high))
    if abs(one.kurtosis - _UNIFORM) < shape_off and abs(largest / bound - 1) < size_off:
        return f"uniform up to {bound:.4f}"
    return None


def _listed(found: list[str]) -> str:
    more = len(found) - _MOST_SHOWN
    return "; ".join(found[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


CHECKS = (
    Check(
        "finite",
        "NaN and infinity: small tensors whole, of larger ones 131,072 values",
        "sgl-project/SpecForge#104, vllm-project/speculators#238, #615",
        Severity.FAIL,
        "the training diverged, or a file was damaged: take an earlier checkpoint or fetch it again",
        OWN,
        finite,
    ),
    Check(
        "constant",
        "tensors that are zero, or one value, throughout",
        "vllm-project/speculators#1114: weights of unmatched keys are never written",
        Severity.FAIL,
        "convert the checkpoint again, and see that every tensor is matched",
        OWN,
        varied,
    ),
    Check(
        "norms-trained",
        "whether any norm differs from 1",
        "vllm-project/speculators#1114, #1131",
        Severity.WARN,
        "the norms of an untrained head are 1: see that the conversion matched them",
        OWN,
        norms_trained,
    ),
    Check(
        "initialised",
        "matrices whose distribution is that of a fresh layer",
        "vllm-project/speculators#1114, #358, #360: random weights on unmatched keys, nothing accepted",
        Severity.WARN,
        "a head that was hardly trained looks so, and one whose conversion left tensors out: convert it again",
        OWN,
        initialised,
    ),
)
