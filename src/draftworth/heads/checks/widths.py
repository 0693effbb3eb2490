"""Hidden sizes, layers and the shapes of what is not a vocabulary."""

from draftworth.heads.base import Method
from draftworth.heads.layout import wanted
from draftworth.heads.subject import HEADS, OWN, CannotCheckError, Check, Fine, Outcome, Severity, Subject, Wrong

_MOST_SHOWN = 3


def hidden_size(subject: Subject) -> Outcome:
    """The width of the hidden states that the head expects is the target's."""
    found, expected = subject.draft.target_hidden_size, subject.of_target("hidden_size")
    if found is None:
        return Wrong("config.json tells no hidden_size", f"{expected}, as the target")
    return Fine(f"{found}") if found == expected else Wrong(f"{found}", f"{expected}, as the target")


def fc_shape(subject: Subject) -> Outcome:
    """`fc` takes as many hidden states as the engine gives it."""
    draft = subject.draft
    if draft.method is Method.MEDUSA or not draft.eagle_config.get("use_aux_hidden_state", True):
        return None
    fc = subject.loaded.get("fc.weight")
    if fc is None:
        raise CannotCheckError("there is no fc.weight" + (" (its weights are quantised)" if draft.is_quantised else ""))
    hidden, target = draft.hidden_size, subject.of_target("hidden_size")
    count = 2 if draft.method is Method.EAGLE else draft.aux_count
    parts = "an embedding and a hidden state" if draft.method is Method.EAGLE else f"{count} layers of {target}"
    expected = [hidden, count * target]
    if list(fc.shape) == expected:
        return Fine(f"{expected}", f"{expected}: {parts}")
    return Wrong(f"{list(fc.shape)}", f"{expected}: {parts}", _fc_fix(subject, fc.shape, target))


def _fc_fix(subject: Subject, shape: tuple[int, ...], target: int) -> str | None:
    """Return a better fix where the ids are told, but not where the engine's class counts them."""
    aux = subject.draft.aux
    if aux is None or len(shape) != 2 or shape[1] != len(aux.ids) * target:  # noqa: PLR2004 - a matrix
        return None
    return f"vLLM's class does not count {aux.field}: add num_aux_hidden_states = {len(aux.ids)} to config.json"


def layers(subject: Subject) -> Outcome:
    """As many layers have weights as config.json tells."""
    told = subject.draft.layers
    prefix = "model.layers." if subject.draft.method is Method.DRAFT_MODEL else "layers."
    if told is None or subject.draft.method is Method.MEDUSA:
        return None
    numbers = {name.removeprefix(prefix).partition(".")[0] for name in subject.loaded if name.startswith(prefix)}
    found = sum(one.isdigit() for one in numbers)
    if found == 0 and wanted(subject.draft) is None:
        raise CannotCheckError(f"no tensor's name begins with {prefix}")
    expected = f"num_hidden_layers = {told}"
    return Fine(f"{found}", expected) if found == told else Wrong(f"weights of {found} layers", expected)


def shapes(subject: Subject) -> Outcome:
    """Every other tensor has the shape that the engine's class gives it."""
    if subject.draft.is_quantised:
        raise CannotCheckError("its weights are quantised; their shapes are those of the quantisation")
    wrong = []
    seen = 0
    for name, one in subject.wanted.items():
        there = subject.loaded.get(name)
        if there is None or name in _ELSEWHERE:
            continue
        seen += 1
        expected = [size if want is None else want for size, want in zip(there.shape, one.shape, strict=False)]
        if len(there.shape) != len(one.shape) or list(there.shape) != expected:
            wrong.append((there.name, list(there.shape), list(one.shape)))
    if not wrong:
        return Fine(f"{seen} tensors as config.json tells")
    shown = wrong[:_MOST_SHOWN]
    more = f" and {len(wrong) - len(shown)} more" if len(wrong) > len(shown) else ""
    return Wrong(
        "; ".join(f"{name} {shape}" for name, shape, _ in shown) + more,
        "; ".join(f"{expected}" for _, _, expected in shown) + ", by config.json",
    )


def size(subject: Subject) -> Outcome:
    """A draft model is much smaller than its target."""
    ours, theirs = (
        sum(one.size for one in subject.tensors.values()),
        sum(one.size for one in subject.target_tensors.values()),
    )
    found = f"{ours / theirs:.2g} times as many weights as the target"
    expected = f"at most {_LARGEST_SHARE:g} times as many"
    return Fine(found, expected) if ours <= _LARGEST_SHARE * theirs else Wrong(found, expected)


_LARGEST_SHARE = 0.5
"""Even where every token is accepted, k tokens cost k of the draft's steps and one of the target's."""
_ELSEWHERE = ("fc.weight", "lm_head.weight", "embed_tokens.weight", "model.embed_tokens.weight", "d2t")
"""Tensors with a check of their own."""

CHECKS = (
    Check(
        "hidden-size",
        "hidden_size, or target_hidden_size, against the target's hidden_size",
        "vllm-project/vllm#18906",
        Severity.FAIL,
        "the head was made for a model of another width; take one for this target",
        HEADS,
        hidden_size,
    ),
    Check(
        "fc-shape",
        "fc.weight: the head's width by what the engine feeds it",
        "vllm-project/vllm#18906; vLLM 0.32: num_aux_hidden_states in llama_eagle3.py and qwen3_eagle3.py",
        Severity.FAIL,
        "the head was trained on another number of layers, or for another width; take one for this target",
        HEADS - {Method.MEDUSA},
        fc_shape,
    ),
    Check(
        "layers",
        "num_hidden_layers against the layers that have weights",
        "vllm-project/speculators#1114",
        Severity.FAIL,
        "correct num_hidden_layers in config.json, or convert the checkpoint again",
        OWN,
        layers,
    ),
    Check(
        "tensor-shapes",
        "the shapes of attention, MLP and norms against config.json",
        "vllm-project/vllm#54526",
        Severity.FAIL,
        "config.json belongs to other weights; take both from the same checkpoint",
        OWN,
        shapes,
    ),
    Check(
        "draft-size",
        "the number of weights of a draft model against the target's",
        "arithmetic: S = G / (1 + k T_draft / T_target), and T follows the bytes that a step reads",
        Severity.WARN,
        "it can be served, and will hardly pay: take a smaller draft model",
        frozenset({Method.DRAFT_MODEL}),
        size,
    ),
)
