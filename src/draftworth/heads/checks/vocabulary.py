"""Vocabularies: sizes, the head's output and the maps between draft tokens and target tokens.

d2t holds offsets: target token = draft token + d2t[draft token]. t2d marks the target's tokens that can be drafted.
vLLM reads d2t and passes t2d over (`llama_eagle3.py`).
"""

import numpy as np
from numpy.typing import NDArray

from draftworth.heads.base import Method
from draftworth.heads.files.tensors import Tensor, read
from draftworth.heads.subject import OWN, WITH_AUX, CannotCheckError, Check, Fine, Outcome, Severity, Subject, Wrong

_WHOLE_NUMBERS = ("I64", "I32", "I16")


def vocabulary(subject: Subject) -> Outcome:
    """The draft knows as many tokens as the target."""
    found, expected = subject.draft.vocabulary, subject.of_target("vocab_size")
    if found is None:
        if subject.draft.method is Method.MEDUSA:
            return Fine("none told: vLLM takes the target's", f"{expected}")
        return Wrong("config.json tells no vocab_size", f"{expected}, as the target")
    if subject.draft.method is Method.MEDUSA and found != expected:
        return Fine(f"{found}, which vLLM replaces by the target's", f"{expected}")
    return Fine(f"{found}") if found == expected else Wrong(f"{found}", f"{expected}, as the target")


def lm_head(subject: Subject) -> Outcome:
    """The head's output has a row for each token it can draft."""
    draft = subject.draft
    target = subject.of_target("vocab_size")
    if draft.method is Method.EAGLE:
        return None
    if draft.method is Method.MEDUSA:
        return _medusa_heads(subject, target)
    rows, columns = draft.draft_vocabulary, draft.hidden_size
    there = subject.loaded.get("lm_head.weight")
    if there is None:
        return _no_lm_head(subject, target, f"[{rows}, {columns}]")
    why = "draft_vocab_size" if rows != target else "vocab_size"
    if list(there.shape) == [rows, columns]:
        return Fine(f"[{rows}, {columns}]")
    return Wrong(f"{list(there.shape)}", f"[{rows}, {columns}], by {why} and hidden_size")


def _no_lm_head(subject: Subject, target: int, expected: str) -> Outcome:
    draft = subject.draft
    if draft.is_quantised:
        raise CannotCheckError("its weights are quantised")
    if draft.method is Method.DRAFT_MODEL:
        assert subject.wanted  # where its names are not known, nothing can be missed
        tied = bool(draft.config.get("tie_word_embeddings"))
        return Fine("none: the embedding's is taken", expected) if tied else Wrong("none", expected)
    if draft.draft_vocabulary == target:
        return Fine("none: the target's is taken", expected)
    return Wrong("none, so that vLLM takes the target's", f"{expected}, by draft_vocab_size")


def _medusa_heads(subject: Subject, target: int) -> Outcome:
    if subject.draft.is_quantised or "token_map" in subject.loaded:
        raise CannotCheckError("heads with a token map or quantised weights are not looked into")
    wrong = [
        one
        for name, one in subject.loaded.items()
        if name.startswith(("lm_heads.", "lm_head.")) and one.shape[:1] != (target,)
    ]
    expected = f"{target} rows each, as the target's vocabulary"
    return Wrong(f"{wrong[0].name} {list(wrong[0].shape)}", expected) if wrong else Fine(expected)


def d2t_there(subject: Subject) -> Outcome:
    """A head with a vocabulary of its own says which tokens these are."""
    drafted, target = subject.draft.draft_vocabulary, subject.of_target("vocab_size")
    if drafted is None:
        raise CannotCheckError("config.json tells no vocab_size")
    there = "d2t" in subject.loaded
    if drafted == target:
        return Fine("the whole vocabulary can be drafted: no d2t is needed")
    expected = f"d2t, since draft_vocab_size is {drafted} of {target}"
    return Fine(expected) if there else Wrong("no d2t: vLLM takes the first tokens of the vocabulary", expected)


def d2t_shape(subject: Subject) -> Outcome:
    """The maps have one entry a token, of whole numbers."""
    d2t, t2d = subject.loaded.get("d2t"), subject.tensors.get("t2d")
    if d2t is None and t2d is None:
        return None
    rows, target = subject.draft.draft_vocabulary, subject.of_target("vocab_size")
    found, expected = [], []
    if d2t is not None:
        found.append(f"d2t {d2t.dtype} {list(d2t.shape)}")
        expected.append(f"d2t I64 [{rows}]")
    if t2d is not None:
        found.append(f"t2d {t2d.dtype} {list(t2d.shape)}")
        expected.append(f"t2d BOOL [{target}]")
    fine = (d2t is None or (d2t.shape == (rows,) and d2t.dtype in _WHOLE_NUMBERS)) and (
        t2d is None or t2d.shape == (target,)
    )
    return Fine(", ".join(found)) if fine else Wrong(", ".join(found), ", ".join(expected))


def _targets(subject: Subject) -> NDArray[np.int64] | None:
    """Return the target token of each draft token, [draft tokens]; none where there is no d2t.

    Raises:
        CannotCheckError: d2t is no list of whole numbers.
    """
    d2t = subject.loaded.get("d2t")
    if d2t is None:
        return None
    offsets = _vector(d2t)
    return offsets + np.arange(len(offsets))


def _vector(tensor: Tensor) -> NDArray[np.int64]:
    if len(tensor.shape) != 1 or tensor.is_floating or not tensor.can_be_read:
        raise CannotCheckError(f"{tensor.name} is {tensor.dtype} {list(tensor.shape)}")
    return read(tensor).astype(np.int64)


def d2t_range(subject: Subject) -> Outcome:
    """Every drafted token is one of the target's, and each only once."""
    tokens = _targets(subject)
    if tokens is None or len(tokens) == 0:
        return None
    target = subject.of_target("vocab_size")
    expected = f"offsets that lead to different tokens from 0 to {target - 1}"
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= target:
        offsets = tokens - np.arange(len(tokens))
        absolute = bool((offsets >= 0).all() and (offsets < target).all() and (np.diff(offsets) > 0).all())
        fix = "d2t holds token ids; subtract the row's number from each" if absolute else None
        return Wrong(f"tokens from {low} to {high}", expected, fix)
    twice = len(tokens) - len(np.unique(tokens))
    if twice:
        return Wrong(f"{twice} of {len(tokens)} rows lead to a token that another row leads to", expected)
    return Fine(f"{len(tokens)} tokens from {low} to {high}", expected)


def d2t_order(subject: Subject) -> Outcome:
    """The tokens rise, and are not merely the first ones."""
    tokens = _targets(subject)
    if tokens is None or len(tokens) < 2:  # noqa: PLR2004 - one has no order
        return None
    expected = "rising tokens, chosen by how frequent they are"
    falls = int((np.diff(tokens) <= 0).sum())
    if falls:
        return Wrong(f"{falls} of {len(tokens)} tokens are not above the one before", expected)
    if len(tokens) < subject.of_target("vocab_size") and not (tokens - np.arange(len(tokens))).any():
        return Wrong(f"all zero: the first {len(tokens)} tokens of the vocabulary", expected)
    return Fine(f"{len(tokens)} rising tokens", expected)


def maps_agree(subject: Subject) -> Outcome:
    """T2d marks the tokens that d2t leads to."""
    tokens, t2d = _targets(subject), subject.tensors.get("t2d")
    if tokens is None or t2d is None:
        return None
    marked = np.flatnonzero(_vector(t2d))
    expected = "the same tokens in both"
    if np.array_equal(np.sort(tokens), marked):
        return Fine(f"{len(marked)} tokens", expected)
    apart = len(np.setxor1d(tokens, marked))
    return Wrong(f"d2t leads to {len(tokens)} tokens, t2d marks {len(marked)}; {apart} are in one of them", expected)


CHECKS = (
    Check(
        "vocabulary",
        "vocab_size against the target's",
        "vLLM 0.32: verify_equal_vocab_size_if_draft_model; llama_eagle3.py spreads the logits over vocab_size",
        Severity.FAIL,
        "take a draft with the target's vocabulary (a draft model with another one: use_heterogeneous_vocab)",
        OWN,
        vocabulary,
    ),
    Check(
        "lm-head",
        "lm_head.weight against draft_vocab_size and hidden_size",
        "sgl-project/SpecForge#76: 32000 against 6054",
        Severity.FAIL,
        "set draft_vocab_size to the rows of lm_head.weight, or export the head again",
        OWN,
        lm_head,
    ),
    Check(
        "d2t",
        "whether a head with fewer tokens says which they are",
        "NVIDIA-NeMo/Automodel#2447",
        Severity.FAIL,
        "put d2t into the checkpoint; trainers keep it beside the data (d2t-N.npy, vocab_mapping.pt)",
        WITH_AUX,
        d2t_there,
    ),
    Check(
        "d2t-shape",
        "shapes and types of d2t and t2d",
        "vllm-project/speculators#1081: maps of another vocabulary size were taken again",
        Severity.FAIL,
        "the maps belong to another vocabulary; take those that the head was trained with",
        WITH_AUX,
        d2t_shape,
    ),
    Check(
        "d2t-range",
        "the tokens that d2t leads to",
        "vLLM 0.32: compute_logits in llama_eagle3.py writes to arange + d2t",
        Severity.FAIL,
        "take the d2t that the head was trained with",
        WITH_AUX,
        d2t_range,
    ),
    Check(
        "d2t-order",
        "whether the tokens of d2t rise, and are not just the first ones",
        "NVIDIA-NeMo/Automodel#2447: the first N tokens, acceptance collapsed",
        Severity.WARN,
        "take the d2t that the head was trained with",
        WITH_AUX,
        d2t_order,
    ),
    Check(
        "d2t-t2d",
        "whether d2t and t2d name the same tokens",
        "vllm-project/speculators#1081",
        Severity.FAIL,
        "one of them is stale; take both from the run that trained the head",
        WITH_AUX,
        maps_agree,
    ),
)
