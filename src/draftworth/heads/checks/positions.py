"""Positions: how long a context the draft was made for, and how it turns positions."""

from collections.abc import Mapping
from typing import Any

from draftworth.heads.base import Method
from draftworth.heads.subject import EAGLES, OWN, CannotCheckError, Check, Fine, Outcome, Severity, Subject, Wrong
from draftworth.heads.supported import NOT_RAISED, RAISES_POSITIONS

_PLAIN_ROPE = ("default", None)
_OF_ROPE = (
    "factor",
    "original_max_position_embeddings",
    "low_freq_factor",
    "high_freq_factor",
    "mscale",
    "mscale_all_dim",
)
_THETA = 10000.0
"""What Transformers' configs of Llama and its kin take where none is told."""


def _served(subject: Subject) -> tuple[int, str]:
    if subject.max_model_len is not None:
        return subject.max_model_len, "--max-model-len"
    return subject.of_target("max_position_embeddings"), "the target's max_position_embeddings"


def length(subject: Subject) -> Outcome:
    """The draft's positions reach as far as the server's."""
    own = subject.draft.fields.number("max_position_embeddings")
    if own is None:
        raise CannotCheckError("config.json tells no max_position_embeddings")
    served, whence = _served(subject)
    expected = f"at least {served}, {whence}"
    if own >= served:
        return Fine(f"{own}", expected)
    if subject.draft.method is Method.DRAFT_MODEL:
        return Wrong(f"{own}: requests are drafted for up to there", expected)
    return Wrong(f"{own}: a sign that it was trained on no longer context", expected)


def cache(subject: Subject) -> Outcome:
    """The engine's table of rotary positions reaches as far as the server's."""
    own = subject.draft.fields.number("max_position_embeddings")
    served, whence = _served(subject)
    if own is None or own >= served:
        return None
    if subject.release >= RAISES_POSITIONS:
        return Fine(f"{own}, which this vLLM raises to {served}", f"at least {served}, {whence}")
    asked = ".".join(map(str, subject.release))
    if subject.release[:2] > NOT_RAISED:
        raise CannotCheckError(f"{own} is below {served}; whether vLLM {asked} raises it was not read")
    return Wrong(f"{own}; vLLM {asked} reads past the end of its table", f"at least {served}, {whence}")


def theta(subject: Subject) -> Outcome:
    """Draft and target turn positions with the same base."""
    found, expected = _theta(subject.draft.config), _theta(subject.target.text.config)
    if found == expected:
        return Fine(f"{found:g}")
    return Wrong(f"rope_theta {found:g}", f"{expected:g}, as the target")


def scaling(subject: Subject) -> Outcome:
    """Draft and target stretch positions alike."""
    found, expected = _scaling(subject.draft.config), _scaling(subject.target.text.config)
    if found == expected:
        return Fine(_shown(found))
    return Wrong(_shown(found), f"{_shown(expected)}, as the target")


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is told of rotary positions: `rope_parameters` since Transformers 5, `rope_scaling` before."""
    for name in ("rope_parameters", "rope_scaling"):
        found = config.get(name)
        if isinstance(found, Mapping):
            if any(isinstance(one, Mapping) for one in found.values()):
                raise CannotCheckError(f"{name} differs from layer to layer")
            return found
    return {}


def _theta(config: Mapping[str, Any]) -> float:
    found = config.get("rope_theta", _rope(config).get("rope_theta"))
    if found is None:
        return _THETA
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise CannotCheckError(f"rope_theta is {found!r}")
    return float(found)


def _scaling(config: Mapping[str, Any]) -> dict[str, Any]:
    rope = _rope(config)
    kind = rope.get("rope_type", rope.get("type"))
    if kind in _PLAIN_ROPE:
        return {}
    return {"rope_type": kind, **{name: rope[name] for name in _OF_ROPE if name in rope}}


def _shown(scaling: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in scaling.items()) or "no scaling"


_ROTARY = OWN - {Method.MEDUSA}

CHECKS = (
    Check(
        "max-positions",
        "max_position_embeddings against --max-model-len, or the target's",
        "sgl-project/SpecForge#271: 2048 in the config, very low acceptance",
        Severity.WARN,
        "measure the acceptance at the contexts you serve; a head trained on short ones falls behind on long ones",
        _ROTARY,
        length,
    ),
    Check(
        "rotary-cache",
        "max_position_embeddings against what this release of vLLM does with it",
        "vllm-project/vllm#48894",
        Severity.FAIL,
        "raise max_position_embeddings in the head's config.json to the server's --max-model-len",
        EAGLES,
        cache,
    ),
    Check(
        "rope-theta",
        "rope_theta against the target's",
        "sgl-project/SpecForge#271 and its kind: a config that was not the training's",
        Severity.WARN,
        "see which value the head was trained with: trainers take the target's unless told otherwise",
        _ROTARY - {Method.DRAFT_MODEL},
        theta,
    ),
    Check(
        "rope-scaling",
        "rope_scaling or rope_parameters against the target's",
        "sgl-project/SpecForge#271 and its kind: a config that was not the training's",
        Severity.WARN,
        "see whether the head was trained with it: trainers take the target's unless told otherwise",
        _ROTARY - {Method.DRAFT_MODEL},
        scaling,
    ),
)
