"""Reads JSON of llama.cpp's server: `/props`, `/slots` and answers.

`get_props` and `server_slot::to_json` of `tools/server/server-context.cpp`, `task_params::to_json` of `server-task.cpp`
(9093 and 11434). `/props` shows the defaults of a request: its `speculative.types` says `none` on a server that
speculates (seen with 11434), so it is not believed. A slot says by `speculative` whether it can, and in its last
request's parameters by which types.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from draftworth.engines.base import PageFacts
from draftworth.engines.llamacpp import releases
from draftworth.engines.llamacpp.per_request import request_counts, request_stats
from draftworth.findings import Code, Finding, find

JSON_PAGES: tuple[str, ...] = ("/props", "/slots")
_TYPES = "speculative.types"
_OF_PROPS = ("total_slots", "model_ftype", "endpoint_slots", "endpoint_metrics")


def read_page(document: Any) -> PageFacts | None:
    """Return what a parsed page or answer tells, or None where it is none of llama.cpp's.

    Raises:
        MeasureError: an answer's timings have another form, or contradict each other.
    """
    if isinstance(document, Mapping):
        if isinstance(document.get("default_generation_settings"), Mapping) and "total_slots" in document:
            return _props(document)
        return _answer(document)
    if isinstance(document, list) and document and all(_is_slot(one) for one in document):
        return _slots(document)
    return None


def _props(document: Mapping[str, Any]) -> PageFacts:
    settings = document["default_generation_settings"]
    config = {name: _text(document[name]) for name in _OF_PROPS if isinstance(document.get(name), (bool, int, str))}
    if isinstance(settings.get("n_ctx"), int):
        config["n_ctx_slot"] = str(settings["n_ctx"])
    for one in (settings, settings.get("params")):
        types = _types(one)
        if types:
            config["speculative.type"] = types
    return PageFacts(
        kind="/props of llama.cpp",
        version=_version(document.get("build_info")),
        model=_string(document.get("model_path")) or _string(document.get("model_alias")),
        config=config,
    )


def _slots(slots: Sequence[Mapping[str, Any]]) -> PageFacts:
    config = {"n_slots": str(len(slots)), "n_ctx_slot": str(slots[0]["n_ctx"])}
    types = list(dict.fromkeys(name for slot in slots if (name := _types(slot.get("params")))))
    if types:
        config["speculative.type"] = ";".join(types)
    able = {bool(slot["speculative"]) for slot in slots}
    config["speculative.slots"] = "some" if len(able) > 1 else _text(able.pop())
    return PageFacts(kind="/slots of llama.cpp", config=config)


def _answer(document: Mapping[str, Any]) -> PageFacts | None:
    timings = request_stats(document)
    if timings is None:
        return None
    version = _version(document.get("system_fingerprint"))
    settings = document.get("generation_settings")
    types = _types(settings)
    told = isinstance(settings, Mapping) and isinstance(settings.get(_TYPES), str)
    counts = request_counts([timings], version)
    findings: tuple[Finding, ...] = ()
    if told and not types and counts is not None and counts.drafted:
        said = (
            f"its settings say that nothing speculates, and {counts.drafted:,} tokens were drafted; the count is right"
        )
        findings = (find(Code.COUNTS_CONTRADICT, said),)
    return PageFacts(
        kind="an answer of llama.cpp",
        version=version,
        model=_string(document.get("model")),
        config={"speculative.type": types} if types else {},
        counts=counts,
        findings=findings,
    )


def _is_slot(one: object) -> bool:
    return (
        isinstance(one, Mapping)
        and isinstance(one.get("speculative"), bool)
        and isinstance(one.get("n_ctx"), int)
        and "id" in one
    )


def _types(settings: object) -> str:
    """Return the types that settings name, without `none`, which stands in front of every other."""
    value = settings.get(_TYPES) if isinstance(settings, Mapping) else None
    if not isinstance(value, str):
        return ""
    return ",".join(name.strip() for name in value.split(",") if name.strip() not in ("", "none"))


def _version(value: object) -> str | None:
    build = releases.build_of(value) if isinstance(value, str) else None
    return releases.named(build) if build else None


def _string(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
