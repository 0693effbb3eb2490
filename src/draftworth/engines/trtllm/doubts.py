"""Says what TensorRT-LLM does not know, will refuse or will silently change of a planned arm.

Read in `llmapi/llm_args.py` (0.21, 1.0, 1.2, main at 1.3.0rc), `_torch/speculative/interface.py`,
`_torch/pyexecutor/py_executor_creator.py` and `serve/openai_server.py`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from draftworth.engines.base import Doubt, Planned, StartupFacts
from draftworth.engines.trtllm import command as commands
from draftworth.engines.trtllm import measuring, options, releases
from draftworth.engines.trtllm.planned import Settings, settings_of

_ONE_MODEL = frozenset({"MTP", "Eagle", "Eagle3"})
_NO_OVERLAP = frozenset({"NGram", "UserProvided", "User_Provided"})
_FORCED = "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"
_GREEDY = frozenset({"temperature", "top_p", "top_k", "min_p"})


def doubts(arm: Planned, facts: StartupFacts) -> tuple[Doubt, ...]:
    """Return every doubt about an arm; an options file that can be read from here is looked into.

    Args:
        arm: the arm.
        facts: what is known of the server; an unknown version leaves out what depends on it, or says so.
    """
    words = (*arm.command, *arm.args)
    given = arm.speculation or {}
    settings = settings_of(arm)
    spec, content = settings.speculation, settings.content
    found: list[Doubt] = []
    if given and commands.file_of(given)[1] is None:
        found.append(_only_by_file(given))
    found += _file(settings, given, facts.version)
    if _FORCED in arm.env:
        found.append(_forced(arm.env[_FORCED]))
    if spec:
        backend = _backend(words, content, facts)
        found += _types(spec, facts.version, backend)
        found += _required(spec, facts.version)
        found += _changed(spec, facts.version, arm, content)
        found += _loss(spec)
    if settings.speculates:
        found += measuring.doubts(settings, facts)
    return tuple(found)


def _backend(words: tuple[str, ...], content: Mapping[str, Any] | None, facts: StartupFacts) -> str:
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--backend":
            return value if equals else "".join(words[index + 1 : index + 2])
    named = (content or {}).get("backend")
    if isinstance(named, str):
        return named
    return "tensorrt" if releases.before(facts.version, 1) else "pytorch"


def _only_by_file(given: Mapping[str, Any]) -> Doubt:
    return Doubt(
        code="only_by_file",
        severity="refused",
        what="trtllm-serve has no option that takes speculative_config; it comes from the YAML options file",
        fix=f"write a file with these lines and name it in {commands.FILE_KEY}:\n{options.written(dict(given))}",
    )


def _file(settings: Settings, given: Mapping[str, Any], version: str | None) -> Iterator[Doubt]:
    """Yield what is wrong with how the options file is named, and with the file itself."""
    if commands.file_of(given) == (commands.ALIAS, settings.file) and releases.before(version, 1, 2) is not False:
        yield Doubt(
            code="option_of_later_release",
            severity="note" if releases.parse(version) is None else "refused",
            what=f"--{commands.ALIAS} is known to 1.2 and later",
            fix=f"name the file in {commands.FILE_KEY}, which every release knows",
            since="1.2 and later",
        )
    if settings.file is None:
        return
    fault = options.fault_in(settings.file)
    if fault is not None:
        yield Doubt(
            code="options_unreadable",
            severity="refused",
            what=f"the options file is no YAML that a server could read: {fault}",
            fix="mend that line",
        )
    elif settings.content is None:
        here = options.is_here(settings.file)
        yield Doubt(
            code="options_not_read",
            severity="note",
            what=f"{settings.file} cannot be read from here"
            + (": it holds YAML that this tool does not read" if here else ""),
            fix="check yourself that it configures what this arm should measure",
        )


def _forced(value: str) -> Doubt:
    return Doubt(
        code="acceptance_forced",
        severity="changed",
        what=f"{_FORCED}={value} accepts so many drafted tokens a step whatever the model says; its text means nothing",
        fix="take the variable out of the environment, or use the arm only as a what-if of its speed",
    )


def _types(spec: Mapping[str, Any], version: str | None, backend: str) -> Iterator[Doubt]:
    kind = spec.get("decoding_type")
    if not isinstance(kind, str):
        yield Doubt(
            code="no_decoding_type",
            severity="refused",
            what="speculative_config without a decoding_type names no drafter",
            fix=f"add decoding_type, one of {', '.join(releases.types_of(version) or releases.ALL_TYPES)}",
        )
        return
    known = releases.types_of(version)
    if kind not in (known or releases.ALL_TYPES):
        names = ", ".join(known or releases.ALL_TYPES)
        of = f"TensorRT-LLM {version}" if known else "any release up to 1.3.0rc"
        yield Doubt(
            code="unknown_decoding_type",
            severity="unknown",
            what=f"decoding_type: {kind} is not one of {of}",
            fix=f"use one of {names}; upper and lower case count",
        )
    tensorrt = backend in ("tensorrt", "trt")
    wrong = kind in (releases.PYTORCH_ONLY if tensorrt else releases.TENSORRT_ONLY)
    if wrong:
        yield Doubt(
            code="backend_lacks_type",
            severity="refused",
            what=f"the {backend} backend has no {kind}",
            fix="use Eagle3, MTP, NGram or DraftTarget" if not tensorrt else "start with --backend pytorch",
        )
    if kind == "Eagle" and not tensorrt and releases.before(version, 1, 2) is False:
        yield Doubt(
            code="eagle_means_eagle3",
            severity="note",
            what="decoding_type: Eagle is Eagle3 on the PyTorch backend; EAGLE 1 and 2 checkpoints do not fit",
            fix="say Eagle3, and use an EAGLE-3 checkpoint",
            since="1.2 and later",
        )


def _required(spec: Mapping[str, Any], version: str | None) -> Iterator[Doubt]:
    kind = spec.get("decoding_type")
    length = spec.get("max_draft_len")
    if kind in releases.NEEDS_LENGTH and not (isinstance(length, int) and length > 0):
        yield _missing(f"{kind} needs max_draft_len above 0", "add max_draft_len: 3")
    model = spec.get("speculative_model") or spec.get("speculative_model_dir") or spec.get("pytorch_weights_path")
    if kind in releases.NEEDS_DRAFT_MODEL and not model:
        yield _missing(f"{kind} needs the draft's checkpoint", "add speculative_model_dir: /path/to/draft")
    if "speculative_model" in spec and releases.before(version, 1, 2) and releases.before(version, 1) is False:
        yield _missing(
            "speculative_model is called speculative_model_dir in 1.0 and 1.1, which refuse keys they do not know",
            "rename it to speculative_model_dir",
        )
    old = releases.before(version, 1, 3)
    if kind == "NGram" and old and not spec.get("max_matching_ngram_size") and releases.before(version, 1) is False:
        yield _missing("NGram needs max_matching_ngram_size above 0 before 1.3", "add max_matching_ngram_size: 2")
    if kind == "MTP" and old and length and not spec.get("num_nextn_predict_layers"):
        yield Doubt(
            code="mtp_length_ignored",
            severity="changed",
            what=f"MTP drafts num_nextn_predict_layers tokens (1 if left out), not max_draft_len: {length}",
            fix=f"add num_nextn_predict_layers: {length}",
            since="before 1.3",
        )
    if spec.get("max_concurrency") is not None and spec.get("draft_len_schedule") is not None:
        yield _missing("max_concurrency and draft_len_schedule exclude each other", "keep one of them")
    if spec.get("eagle_choices") and spec.get("use_dynamic_tree"):
        yield _missing("eagle_choices and use_dynamic_tree exclude each other", "keep one of them")
    if spec.get("use_dynamic_tree") and not spec.get("dynamic_tree_max_topK"):
        yield _missing("use_dynamic_tree needs dynamic_tree_max_topK above 0", "add dynamic_tree_max_topK: 10")


def _missing(what: str, fix: str) -> Doubt:
    return Doubt(code="refused_setting", severity="refused", what=what, fix=fix)


def _changed(
    spec: Mapping[str, Any], version: str | None, arm: Planned, content: Mapping[str, Any] | None
) -> Iterator[Doubt]:
    kind = spec.get("decoding_type")
    two_model = spec.get("eagle3_one_model") is False or spec.get("mtp_eagle_one_model") is False
    if (kind in _NO_OVERLAP or (two_model and releases.before(version, 1, 1))) and not (content or {}).get(
        "disable_overlap_scheduler"
    ):
        yield Doubt(
            code="overlap_scheduler_off",
            severity="changed",
            what=f"{kind} switches the overlap scheduler off, which slows every step, drafts or not",
            fix="give the baseline disable_overlap_scheduler: true in a second comparison, to see the drafter alone",
        )
    if two_model and releases.before(version, 1, 3) is False:
        yield Doubt(
            code="two_model_deprecated",
            severity="note",
            what="two-model drafting is deprecated and leaves with release 1.4",
            fix="use the one-model form (the default)",
            since="1.3.0rc",
        )
    one_model = kind in _ONE_MODEL and not two_model and not spec.get("allow_advanced_sampling")
    if one_model and _GREEDY & arm.sampling and releases.before(version, 1, 3) is not False:
        yield Doubt(
            code="sampling_greedy",
            severity="changed",
            what=f"one-model {kind} answers greedily whatever temperature, top_p or top_k a request asks for",
            fix="set allow_advanced_sampling: true (1.2), or compare both arms at temperature 0",
            since="before 1.3",
        )
    if "structured_outputs" in arm.sampling and releases.before(version, 1):
        yield _missing("guided decoding and speculation exclude each other before 1.0", "use 1.0 or later")
    if spec.get("max_concurrency"):
        yield Doubt(
            code="off_above_concurrency",
            severity="changed",
            what=f"speculation is off whenever more than {spec['max_concurrency']} requests run (max_concurrency)",
            fix="measure below and above it as two loads; above it this arm is the baseline with another scheduler",
        )
    if spec.get("acceptance_window") and spec.get("acceptance_length_threshold") is not None:
        yield Doubt(
            code="speculation_gate",
            severity="changed",
            what="the server switches speculation off for good once the mean of acceptance_window requests is below "
            "acceptance_length_threshold",
            fix="take both out while measuring; the log says `Speculative decoding disabled` when it happened",
        )
    if kind == "SaveState":
        yield Doubt(
            code="collects_training_data",
            severity="changed",
            what="SaveState drafts nothing: it writes hidden states with batches of 1 and no CUDA graphs",
            fix="use it to collect data, never as an arm",
        )
    if kind == "NGram" and spec.get("is_public_pool", True):
        yield Doubt(
            code="pool_shared",
            severity="note",
            what="the n-gram pool is shared by all requests, so acceptance grows with what was served before",
            fix="set is_public_pool: false, or send the arms the same prompts in the same order after a fresh start",
        )


def _loss(spec: Mapping[str, Any]) -> Iterator[Doubt]:
    for key in ("use_relaxed_acceptance_for_thinking", "posterior_threshold"):
        if spec.get(key):
            yield Doubt(
                code="not_lossless",
                severity="changed",
                what=f"{key} accepts tokens the model would not have written: faster, and another text",
                fix=f"take {key} out, or judge the answers' quality too",
            )
