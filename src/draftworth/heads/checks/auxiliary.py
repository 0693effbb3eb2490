"""Which of the target's layers a head reads.

vLLM counts layers applied: 0 is the embedding's output, n the last layer's (`_maybe_add_hidden_state`, `llama.py`).
SpecForge and SGLang call the first layer's output 0, and SGLang adds the one itself (`set_eagle3_layers_to_capture`).
"""

from draftworth.heads.base import Layout, Method
from draftworth.heads.draft import Aux
from draftworth.heads.subject import WITH_AUX, Check, Fine, Outcome, Severity, Subject, Wrong


def default_layers(count: int) -> tuple[int, int, int]:
    """Return the layers that vLLM takes where a head names none.

    `SupportsEagle3.get_eagle3_default_aux_hidden_state_layers`.
    """
    return (2, count // 2, count - 3)


def _uses_aux(subject: Subject) -> bool:
    return bool(subject.draft.eagle_config.get("use_aux_hidden_state", True))


def _told(subject: Subject) -> Aux | None:
    return subject.draft.aux if _uses_aux(subject) else None


def named(subject: Subject) -> Outcome:
    """The head names the layers it was trained on."""
    if not _uses_aux(subject):
        return None
    aux = subject.draft.aux
    if aux is not None:
        return Fine(f"{list(aux.ids)} in {aux.field}")
    default = default_layers(subject.of_target("num_hidden_layers"))
    return Wrong(f"no layer ids; vLLM takes {list(default)} without a word", "the ids that it was trained on")


def in_range(subject: Subject) -> Outcome:
    """The layers are there, each once and in order."""
    count = subject.of_target("num_hidden_layers")
    aux = _told(subject)
    if aux is None and not _uses_aux(subject):
        return None
    ids = aux.ids if aux else default_layers(count)
    whence = aux.field if aux else "vLLM's default"
    expected = f"from 0 to {count}, each once, rising: the target has {count} layers"
    if all(0 <= one <= count for one in ids) and list(ids) == sorted(set(ids)):
        return Fine(f"{list(ids)}", expected)
    return Wrong(f"{list(ids)} ({whence})", expected)


def counted_from(subject: Subject) -> Outcome:
    """The ids are not those of a trainer that counts from 0."""
    aux = _told(subject)
    if aux is None or subject.draft.method is Method.DFLASH:
        return None
    count = subject.of_target("num_hidden_layers")
    default = default_layers(count)
    if aux.ids == tuple(one - 1 for one in default):
        return Wrong(
            f"{list(aux.ids)}: each one less than the usual {list(default)}",
            "vLLM's count, in which 2 is the second layer's output",
        )
    return Fine(f"{list(aux.ids)}")


def read_by_engine(subject: Subject) -> Outcome:
    """The ids are where both runners of the engine look."""
    aux = _told(subject)
    if aux is None or not aux.field.startswith("eagle_config."):
        return None
    default = default_layers(subject.of_target("num_hidden_layers"))
    if aux.ids == default:
        return Fine(f"{list(aux.ids)} in {aux.field}, which are vLLM's default too")
    runner = "V2" if aux.field.endswith("eagle_aux_hidden_state_layer_ids") else "V1"
    return Wrong(
        f"{list(aux.ids)} in {aux.field} alone, where the {runner} runner does not look: it takes {list(default)}",
        "eagle_aux_hidden_state_layer_ids at the top of config.json",
        f"add eagle_aux_hidden_state_layer_ids = {list(aux.ids)} at the top of config.json",
    )


def mask_token(subject: Subject) -> Outcome:
    """The mask token of parallel drafting is a token of the vocabulary."""
    draft = subject.draft
    parallel = draft.method is Method.DFLASH or draft.model.config.get("speculators_model_type") == "peagle"
    if not parallel:
        return None
    holder = draft.dflash_config if "mask_token_id" in draft.dflash_config else draft.config
    found, vocabulary = holder.get("mask_token_id", holder.get("pard_token")), draft.vocabulary
    expected = "a token id" if vocabulary is None else f"from 0 to {vocabulary - 1}"
    if type(found) is int and found >= 0 and (vocabulary is None or found < vocabulary):
        return Fine(f"{found}", expected)
    where = "mask_token_id" if draft.layout is Layout.SPECULATORS else "dflash_config.mask_token_id"
    return Wrong(f"{where} is {found!r}", expected)


CHECKS = (
    Check(
        "aux-layers",
        "whether the layer ids are told",
        "vllm-project/vllm#50170: 1.2 % accepted instead of 58.9 %",
        Severity.WARN,
        "ask the head's trainer for its layers and write them into config.json as eagle_aux_hidden_state_layer_ids",
        WITH_AUX,
        named,
    ),
    Check(
        "aux-layers-range",
        "the layer ids against the target's layers; vLLM sorts them and drops doubles",
        "vLLM 0.32: EagleModelMixin in model_executor/models/interfaces.py",
        Severity.FAIL,
        "correct the ids in config.json, or take a head for a target with this number of layers",
        WITH_AUX,
        in_range,
    ),
    Check(
        "aux-layers-count",
        "whether the ids count from 0, as SpecForge's and SGLang's do",
        "vllm-project/vllm#43671, lightseekorg/TorchSpec#87: 10 % accepted instead of 45 %",
        Severity.WARN,
        "where the head was trained with SpecForge or for SGLang, add 1 to each id; ask its trainer otherwise",
        WITH_AUX,
        counted_from,
    ),
    Check(
        "aux-layers-place",
        "whether the ids are where both of vLLM's runners read them",
        "vLLM 0.32: gpu_model_runner.py (V1) and gpu/spec_decode/eagle/eagle3_utils.py (V2)",
        Severity.WARN,
        "move them to eagle_aux_hidden_state_layer_ids at the top of config.json",
        WITH_AUX,
        read_by_engine,
    ),
    Check(
        "mask-token",
        "the mask token of a parallel drafter",
        "vLLM 0.32: update_dflash and update_peagle in transformers_utils/configs/speculators/algos.py",
        Severity.FAIL,
        "take mask_token_id from the head's trainer; without it parallel drafting cannot be served",
        WITH_AUX,
        mask_token,
    ),
)
