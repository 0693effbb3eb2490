"""Names of tensors: what the engine's loader misses, refuses and passes over, and whether the files are whole."""

from draftworth.heads.base import Method
from draftworth.heads.layout import Fate, fate, loaded_name
from draftworth.heads.subject import (
    ALL,
    OWN,
    WITH_AUX,
    CannotCheckError,
    Check,
    Fine,
    Outcome,
    Severity,
    Subject,
    Wrong,
)
from draftworth.reports.words import plural

_MOST_SHOWN = 4
_USUAL = ("t2d", "rotary_emb.inv_freq")
"""Passed over, and of no use to vLLM."""


def files(subject: Subject) -> Outcome:
    """Every file of weights is there, whole, and as its index says."""
    weights = subject.draft.model.weights
    if weights.problems:
        return Wrong("; ".join(weights.problems), "files that can be read to their end, as the index names them")
    if weights.unread:
        raise CannotCheckError("; ".join(weights.unread))
    kind = "torch.save" if weights.pickled else "safetensors"
    return Fine(f"{len(weights.tensors)} tensors in {plural(len(weights.files), 'file')} of {kind}")


def missing(subject: Subject) -> Outcome:
    """Every tensor that the engine's class has is in the checkpoint."""
    if subject.draft.is_quantised:
        raise CannotCheckError("its weights are quantised; their names are those of the quantisation")
    wanted = [name for name, one in subject.wanted.items() if one.required]
    absent = [name for name in wanted if name not in subject.loaded and not _elsewhere(subject, name)]
    expected = f"the {len(wanted)} tensors of {subject.draft.architecture}"
    return Wrong(f"missing: {_listed(absent)}", expected) if absent else Fine(expected)


def refused(subject: Subject) -> Outcome:
    """The engine's class has a place for every tensor of the checkpoint."""
    if subject.draft.is_quantised:
        raise CannotCheckError("its weights are quantised; their names are those of the quantisation")
    bad = [
        name
        for name in subject.tensors
        if fate(subject.draft, name, subject.wanted) is Fate.REFUSED and not _elsewhere(subject, name)
    ]
    if not bad:
        return Fine("none without a place")
    nested = all(name.startswith("model.") for name in bad) and subject.draft.method is not Method.DRAFT_MODEL
    fix = "export the head without the prefix `model.`: vLLM adds it itself" if nested else None
    return Wrong(f"no place for {_listed(bad)}", f"names of {subject.draft.architecture}", fix)


def ignored(subject: Subject) -> Outcome:
    """The loader passes over nothing that was trained."""
    bad = [
        name
        for name in subject.tensors
        if fate(subject.draft, name, subject.wanted) is Fate.IGNORED
        and not any(one in name for one in _USUAL)
        and not _elsewhere(subject, name)
    ]
    return Wrong(f"passed over: {_listed(bad)}", "none passed over") if bad else Fine("none passed over")


def norm_flags(subject: Subject) -> Outcome:
    """The norms before `fc` are told of where they are, and are there where they are told of."""
    draft = subject.draft
    if not draft.eagle_config.get("use_aux_hidden_state", True):
        return None
    found = []
    for told, flag, prefix in (
        (draft.flag("norm_before_fc"), "norm_before_fc", "input_norm."),
        (bool(draft.config.get("fc_norm")), "fc_norm", "fc_norm."),
    ):
        there = any(name.startswith(prefix) for name in subject.loaded)
        if there != told:
            found.append(f"{flag} is {str(told).lower()}, and {prefix}* is {'there' if there else 'missing'}")
    return Wrong("; ".join(found), "flags and tensors that agree") if found else Fine("flags and tensors agree")


def final_norm(subject: Subject) -> Outcome:
    """There is a norm before `lm_head`."""
    whole = subject.draft.method is Method.DRAFT_MODEL
    name = next(one for one in subject.wanted if one in _LAST_NORMS) if whole else _LAST_NORMS[0]
    if name not in subject.loaded:
        return Wrong(f"no {name}", f"{name}: vLLM norms what goes into lm_head")
    return Fine(name)


def _elsewhere(subject: Subject, name: str) -> bool:
    """Return whether a tensor is another check's: the last norm, lm_head, norms before fc, layers that are too many."""
    name = loaded_name(subject.draft, name) or name
    if name in _OWN_CHECK or (subject.draft.method is Method.EAGLE3 and name.startswith(("input_norm.", "fc_norm."))):
        return True
    prefix = "model.layers." if subject.draft.method is Method.DRAFT_MODEL else "layers."
    if not name.startswith(prefix):
        return False
    layer = f"{prefix}{name.removeprefix(prefix).partition('.')[0]}."
    in_class = any(one.startswith(layer) for one in subject.wanted)
    return not in_class or not any(one.startswith(layer) for one in subject.loaded)


_LAST_NORMS = ("norm.weight", "model.norm.weight")
_OWN_CHECK = (*_LAST_NORMS, "lm_head.weight")


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_SHOWN
    return ", ".join(names[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


CHECKS = (
    Check(
        "files",
        "headers, sizes and index of the files of weights; a file of torch.save is read without running it",
        "huggingface/safetensors: the format; vLLM 0.32: filter_duplicate_safetensors_files",
        Severity.FAIL,
        "fetch the checkpoint again",
        ALL,
        files,
    ),
    Check(
        "keys-missing",
        "tensors of the engine's class that the checkpoint lacks",
        "vllm-project/speculators#1114; the loaders of EAGLE heads say nothing of what is missing",
        Severity.FAIL,
        "convert or export the checkpoint again: what is missing holds whatever the memory held",
        OWN,
        missing,
    ),
    Check(
        "keys-refused",
        "tensors of the checkpoint that the engine's class has no place for",
        "vllm-project/vllm#54526; AutoWeightsLoader raises 'There is no module or parameter named'",
        Severity.FAIL,
        "the checkpoint is of another architecture than config.json tells, or needs converting",
        OWN,
        refused,
    ),
    Check(
        "keys-ignored",
        "tensors that the loader passes over without a word",
        "vLLM 0.32: AutoWeightsLoader passes over unexpected biases; llama_eagle3.py over mask_hidden and input_norm",
        Severity.WARN,
        "where these were trained, what is served is not what was trained: see the field that switches them on",
        OWN,
        ignored,
    ),
    Check(
        "norm-flags",
        "norm_before_fc and fc_norm against input_norm and fc_norm",
        "vLLM 0.32: llama_eagle3.py; without its flag input_norm is passed over (EAGLE-3.1 heads)",
        Severity.FAIL,
        "set the flag in config.json as the head was trained",
        frozenset({Method.EAGLE3}),
        norm_flags,
    ),
    Check(
        "final-norm",
        "the norm before lm_head",
        "vllm-project/speculators#313: acceptance 25 % without it, 40 % with it",
        Severity.FAIL,
        "export the head with its final norm",
        WITH_AUX | {Method.DRAFT_MODEL},
        final_norm,
    ),
)
