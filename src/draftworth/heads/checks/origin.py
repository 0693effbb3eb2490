"""For which model a head was trained: one of another model or revision fits in every size and drafts badly."""

import re
from collections.abc import Iterator, Mapping

from draftworth.heads.base import Method
from draftworth.heads.subject import OWN, CannotCheckError, Check, Fine, Outcome, Severity, Subject, Wrong

_FIELDS = (
    *("target_model_name_or_path", "target_model_path", "target_model", "base_model_name_or_path", "base_model"),
    *("verifier_name_or_path", "teacher_model_name_or_path", "teacher_model"),
)
_CHANGED = re.compile(
    r"[-_.]?(fp8|nvfp4|mxfp4|int4|int8|awq|gptq|gguf|w4a16|w8a8|bf16|fp16|hf|unquantized|dynamic|quantized)(?=[-_.]|$)",
    re.IGNORECASE,
)
"""What copies of the same model in other types are called by."""


_OWN_NAME = re.compile(r"eagle|medusa|dflash|draft|head|mtp|spec", re.IGNORECASE)
"""What a name of a head has in it."""


def told(subject: Subject) -> Outcome:
    """The model that it was trained for is the target, by name."""
    claims = list(_claims(subject))
    if not claims:
        raise CannotCheckError("neither config.json nor README.md tells for which model it was trained")
    names = subject.target.names
    expected = f"the target, known as {' or '.join(names)}"
    where, name = claims[0]
    if any(_plain(one) == _plain(name) for one in names):
        return Fine(f"{where} is {name}", expected)
    return Wrong(f"{where} is {name}", expected)


def verifier(subject: Subject) -> Outcome:
    """The verifier that speculators' config names has the target's architecture."""
    found = _verifier(subject).get("architectures")
    if not isinstance(found, list) or not found:
        return None
    target = subject.target.architecture
    return Fine(f"{target}") if target in found else Wrong(f"{found[0]}", f"{target}, as the target")


def layer_count(subject: Subject) -> Outcome:
    """The number of layers that a DFlash head notes is the target's."""
    found = subject.draft.fields.number("num_target_layers")
    if found is None:
        return None
    count = subject.of_target("num_hidden_layers")
    return Fine(f"{found}") if found == count else Wrong(f"num_target_layers is {found}", f"{count}, as the target")


def _claims(subject: Subject) -> Iterator[tuple[str, str]]:
    draft = subject.draft.model
    name = _verifier(subject).get("name_or_path")
    if isinstance(name, str) and name:
        yield "speculators_config.verifier.name_or_path", name
    for field in _FIELDS:
        name = draft.config.get(field)
        if isinstance(name, str) and name:
            yield field, name
    if draft.card_base is not None:
        yield "base_model of README.md", draft.card_base
    # Trainers that begin with the target's config.json leave its name in it; others write the head's own.
    name = draft.config.get("_name_or_path")
    if isinstance(name, str) and name not in ("", ".") and not _OWN_NAME.search(name):
        yield "_name_or_path", name


def _verifier(subject: Subject) -> Mapping[str, object]:
    config = subject.draft.model.config.get("speculators_config")
    found = config.get("verifier") if isinstance(config, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _plain(name: str) -> str:
    """Return a name without owner, folder, case and what tells of its type alone."""
    return _CHANGED.sub("", name.rstrip("/").rpartition("/")[2]).lower().replace("_", "-")


_TRAINED = OWN - {Method.DRAFT_MODEL}

CHECKS = (
    Check(
        "trained-for",
        "the model that config.json or README.md names, against the target's names",
        "AQ-MedAI/Kimi-K2-Instruct-eagle3 and -Kimi-K25-eagle3: all sizes equal, trained for another model",
        Severity.WARN,
        "take a head that was trained for this target and revision; where the name alone differs, nothing is wrong",
        _TRAINED,
        told,
    ),
    Check(
        "verifier",
        "the architecture of the verifier in speculators_config",
        "vLLM 0.32: extract_vllm_speculative_config in transformers_utils/configs/speculators/base.py",
        Severity.FAIL,
        "take a head that was trained for this target",
        _TRAINED,
        verifier,
    ),
    Check(
        "target-layers",
        "num_target_layers against the target's layers",
        "vLLM 0.32: qwen3_dflash.py",
        Severity.FAIL,
        "take a head that was trained for this target",
        frozenset({Method.DFLASH, Method.EAGLE3}),
        layer_count,
    ),
)
