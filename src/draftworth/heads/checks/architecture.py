"""Whether the engine has a class for the draft, and whether the target can be drafted for with it."""

from draftworth.heads.architectures import AUXILIARY, READ, REGISTERED, Release, lists_of
from draftworth.heads.base import Layout, Method
from draftworth.heads.subject import (
    ALL,
    HEADS,
    WITH_AUX,
    CannotCheckError,
    Check,
    Fine,
    Outcome,
    Severity,
    Subject,
    Wrong,
)
from draftworth.heads.supported import DRAFTS, MTP_COUNTS, NOT_IN_25, mtp_place


def _lists(subject: Subject) -> Release:
    """Return the release whose lists hold.

    Raises:
        CannotCheckError: none was read of this minor release.
    """
    found = lists_of(subject.release)
    if found is None:
        read = " and ".join(map(_text, READ))
        raise CannotCheckError(f"vLLM {_text(subject.release)} was not read; the lists are those of {read}")
    return found


def _text(release: Release) -> str:
    return ".".join(map(str, release))


def method(subject: Subject) -> Outcome:
    """The method that was asked for is the one the files tell of."""
    if subject.asked is None:
        return None
    if subject.told is None:
        raise CannotCheckError("the files tell of no method that is checked here")
    if subject.told is subject.asked:
        return Fine(subject.told)
    if subject.told is Method.DRAFT_MODEL and not subject.draft.model.weights.tensors:
        raise CannotCheckError("config.json is that of a whole model, as some heads' is, and no tensors could be read")
    return Wrong(f"the files tell of {subject.told}", f"{subject.asked}, as asked")


def architecture(subject: Subject) -> Outcome:
    """The engine's registry has a class for the draft."""
    found, release = subject.draft.architecture, _lists(subject)
    known = DRAFTS[subject.draft.method]
    known = known - NOT_IN_25 if release == READ[0] else known
    expected = f"one of {', '.join(sorted(known))} (vLLM {_text(release)})"
    if found is None:
        return Wrong("config.json tells none that vLLM has a class for", expected)
    if found in known:
        return Fine(found)
    told = subject.draft.model.architecture
    return Wrong(found if found == told else f"{told}, which vLLM looks up as {found}", expected)


def fields(subject: Subject) -> Outcome:
    """The config has every field that the engine's class takes from it."""
    draft = subject.draft
    if draft.method is Method.MEDUSA:
        return None
    bare = draft.layout is Layout.SPECULATORS
    needed = (*_SIZES, *_WITHOUT_DEFAULT) if bare else _SIZES
    absent = [name for name in needed if draft.config.get(name) is None]
    where = "transformer_layer_config" if bare else "config.json"
    expected = f"{', '.join(needed)} in {where}"
    if not absent:
        return Fine(f"{len(needed)} fields in {where}")
    then = "vLLM raises AttributeError" if bare else "the defaults of Transformers are taken"
    return Wrong(f"no {', '.join(absent)}: {then}", expected)


_SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size")
_WITHOUT_DEFAULT = ("hidden_act", "rms_norm_eps")
"""What Transformers' own configs have a default for, and `SpeculatorsConfig` has not."""


def target_support(subject: Subject) -> Outcome:
    """The target's class gives auxiliary hidden states."""
    found, release = subject.target.architecture, _lists(subject)
    expected = f"a class with SupportsEagle3 (vLLM {_text(release)})"
    if found is None:
        raise CannotCheckError("the target's config.json tells no architecture")
    if found not in REGISTERED[release]:
        raise CannotCheckError(f"{found} has no class of vLLM's own; the Transformers backend may serve it")
    return Fine(found, expected) if found in AUXILIARY[release] else Wrong(found, expected)


def mtp_layers(subject: Subject) -> Outcome:
    """The model has MTP layers that the engine can draft with."""
    model = subject.draft.model
    served, _ = mtp_place(model)
    kind = model.config.get("model_type")
    if not served:
        return Wrong(f"model_type is {kind}", "a model that vLLM 0.32 has MTP for")
    layers = model.text.number(*MTP_COUNTS)
    if layers is None:
        raise CannotCheckError(f"config.json tells none of {', '.join(MTP_COUNTS)}")
    return Fine(f"{layers}") if layers else Wrong("0 MTP layers", "at least 1")


def mtp_weights(subject: Subject) -> Outcome:
    """The tensors of the MTP layers are in the files."""
    model = subject.draft.model
    served, prefix = mtp_place(model)
    if not served:
        return None
    if prefix is None:
        raise CannotCheckError(f"where {model.config.get('model_type')} keeps its MTP layers is not known here")
    # A model with more than text has its language model's name before.
    found = [name for name in subject.tensors if name.startswith(prefix) or f".{prefix}" in name]
    expected = f"tensors that begin with {prefix}"
    return Fine(f"{len(found)} {expected}") if found else Wrong("none", expected)


_REGISTRY = "vLLM 0.25 and 0.32: model_executor/models/registry.py, transformers_utils/configs/eagle.py"

CHECKS = (
    Check(
        "method",
        "the method that was asked for, against the files",
        "vLLM 0.32: config/speculative.py; without a method it goes by the model's name",
        Severity.FAIL,
        "ask for the method that the files tell of, and name it in speculative_config: vLLM goes by the name otherwise",
        ALL,
        method,
    ),
    Check(
        "architecture",
        "architectures of config.json, after vLLM's renaming",
        _REGISTRY,
        Severity.FAIL,
        "take a head of one of these architectures, or correct `architectures` in config.json",
        HEADS,
        architecture,
    ),
    Check(
        "config-fields",
        "the sizes in config.json, and what speculators' layout has no default for",
        "vLLM 0.32: SpeculatorsConfig in transformers_utils/configs/speculators/base.py; seen with vLLM 0.32.0",
        Severity.FAIL,
        "add them to config.json as the head was trained",
        HEADS - {Method.MEDUSA},
        fields,
    ),
    Check(
        "target-support",
        "the target's class: whether it gives auxiliary hidden states",
        "vLLM 0.25 and 0.32: SupportsEagle3 in model_executor/models/interfaces.py",
        Severity.FAIL,
        "this target cannot be served with such a head; n-gram or a draft model need no auxiliary hidden states",
        WITH_AUX,
        target_support,
    ),
    Check(
        "mtp-layers",
        "model_type and the number of MTP layers",
        "vLLM 0.32: SpeculativeConfig.hf_config_override",
        Severity.FAIL,
        "this model has no MTP layers that vLLM drafts with; take another method",
        frozenset({Method.MTP}),
        mtp_layers,
    ),
    Check(
        "mtp-weights",
        "the tensors of the MTP layers",
        "vLLM 0.32: the *_mtp.py models",
        Severity.FAIL,
        "these files were made without the MTP layers, as many quantised copies are: take files that have them",
        frozenset({Method.MTP}),
        mtp_weights,
    ),
)
