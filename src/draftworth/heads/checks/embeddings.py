"""The head's embedding against the target's: absent and equal ones are shared, another one is kept and used.

`_maybe_share_embeddings` in vLLM 0.32's `v1/spec_decode/llm_base_proposer.py`.
"""

import numpy as np
from numpy.typing import NDArray

from draftworth.heads.base import Method
from draftworth.heads.files.tensors import Tensor, rows
from draftworth.heads.subject import HEADS, CannotCheckError, Check, Fine, Outcome, Severity, Subject, Wrong

_SAMPLED = 64
_UNRELATED = 0.2
"""Below this median cosine rows of the same token have nothing in common; random ones have about 1/sqrt(width)."""
_CLOSE = 1e-2
"""Relative difference of rows that rounding to bfloat16 and back explains: half a unit of 8 bits is 2^-9 = 0.002."""
_TARGET_NAMES = ("model.embed_tokens.weight", "embed_tokens.weight", "transformer.wte.weight", "tok_embeddings.weight")


def there(subject: Subject) -> Outcome:
    """The head has an embedding, or can share the target's."""
    draft = subject.draft
    shape = [draft.vocabulary, draft.hidden_size]
    own = subject.loaded.get("embed_tokens.weight")
    if own is not None:
        return Fine(f"its own, {shape}") if list(own.shape) == shape else Wrong(f"{list(own.shape)}", f"{shape}")
    width = subject.of_target("hidden_size")
    if draft.hidden_size == width:
        return Fine("none: the target's is shared")
    return Wrong(
        "none, and the target's cannot be shared",
        f"its own embed_tokens.weight: the head is {draft.hidden_size} wide, the target {width}",
    )


def related(subject: Subject) -> Outcome:
    """The embedding is no random one."""
    found = _cosine(subject)
    if found is None:
        return None
    cosine, apart = found
    expected = f"the target's, or one trained from it (of {_SAMPLED} rows; 1 is the same direction, 0 none in common)"
    if cosine < _UNRELATED:
        return Wrong(f"median cosine {cosine:.2f} with the target's rows", expected)
    return Fine(f"median cosine {cosine:.2f} with the target's rows" if apart else "the target's", expected)


def equal(subject: Subject) -> Outcome:
    """The embedding is the target's own."""
    found = _cosine(subject)
    if found is None:
        return None
    cosine, apart = found
    if cosine < _UNRELATED:
        return None  # told as random
    if not apart:
        return Fine(f"{_SAMPLED} sampled rows are the target's")
    return Wrong(
        f"{apart} of {_SAMPLED} sampled rows are not the target's (median cosine {cosine:.2f})",
        "the target's; vLLM keeps and uses this one, SGLang replaces it",
    )


def _cosine(subject: Subject) -> tuple[float, int] | None:
    """Return the median cosine of sampled rows with the target's, and how many are not the same; none where shared.

    Raises:
        CannotCheckError: they cannot be compared.
    """
    own = subject.loaded.get("embed_tokens.weight")
    if own is None:
        return None
    theirs = _of_target(subject)
    if len(own.shape) != 2 or own.shape[1] != theirs.shape[1]:  # noqa: PLR2004 - a matrix
        raise CannotCheckError(f"the head's is {list(own.shape)}, the target's {list(theirs.shape)}")
    for one in (own, theirs):
        if not one.is_floating or not one.can_be_read:
            raise CannotCheckError(f"{one.name} is quantised ({one.dtype})")
    if not min(own.size, theirs.size):
        raise CannotCheckError(f"the head's is {list(own.shape)}, the target's {list(theirs.shape)}")
    which = np.unique(np.linspace(0, min(own.shape[0], theirs.shape[0]) - 1, _SAMPLED).astype(np.int64))
    ours, target = rows(own, which), rows(theirs, which)
    if not np.isfinite(ours).all() or not np.isfinite(target).all():
        raise CannotCheckError("there are rows with NaN or infinity")
    apart = int((np.abs(ours - target).max(axis=1) > _CLOSE * np.abs(target).max(axis=1)).sum())
    return _median_cosine(ours, target), apart


def _median_cosine(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    """Return the median over rows of the cosine; rows that are zero in both, as reserved tokens are, count as 1."""
    sizes = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    both_zero = ~(ours.any(axis=1) | theirs.any(axis=1))
    cosines = np.divide((ours * theirs).sum(axis=1), sizes, out=np.zeros(len(sizes)), where=sizes > 0)
    return float(np.median(np.where(both_zero, 1.0, cosines)))


def _of_target(subject: Subject) -> Tensor:
    tensors = subject.target_tensors
    found = next((tensors[name] for name in _TARGET_NAMES if name in tensors), None)
    if found is None:
        found = next(
            (one for name, one in tensors.items() if name.endswith(("embed_tokens.weight", "wte.weight"))), None
        )
    if found is None or len(found.shape) != 2:  # noqa: PLR2004 - a matrix
        raise CannotCheckError("the target has no tensor named embed_tokens.weight")
    return found


_OF = HEADS - {Method.MEDUSA}

CHECKS = (
    Check(
        "embedding",
        "embed_tokens.weight: its shape, or whether the target's can be shared",
        "vllm-project/vllm#18906: KeyError embed_tokens",
        Severity.FAIL,
        "copy the target's embed_tokens.weight into the checkpoint, or export the head with its own",
        _OF,
        there,
    ),
    Check(
        "embedding-random",
        "sampled rows of embed_tokens.weight against the target's: direction",
        "lightseekorg/TorchSpec#38: a random embedding was exported, kept by vLLM and replaced by SGLang",
        Severity.FAIL,
        "remove embed_tokens.weight from the checkpoint, so that the target's is shared",
        _OF,
        related,
    ),
    Check(
        "embedding-equal",
        "sampled rows of embed_tokens.weight against the target's: value",
        "lightseekorg/TorchSpec#38; trained embeddings and those of another revision differ too",
        Severity.WARN,
        "where the trainer kept the embedding frozen, this head was made for other weights of the target",
        _OF,
        equal,
    ),
)
