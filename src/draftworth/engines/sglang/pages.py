"""Reads SGLang's `/server_info` (`/get_server_info` before 0.5.6).

Layouts (`entrypoints/http_server.py`): 0.4.6 has the figures of one scheduler at the top level; later releases have
`internal_states`, one entry a data-parallel rank. A router before prefill and decode servers answers
`{"prefill": [page, …], "decode": [page, …]}`. `avg_spec_accept_length` is kept by each scheduler since its start or
since the last reset, moves only at every log interval (40 decode steps), and is missing before the first. It is reset
by `/flush_cache` on an idle server, by any `set_internal_state` up to 0.5.13, by one that changes an acceptance
threshold in 0.5.23.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from draftworth.engines.base import PageFacts, Told
from draftworth.engines.sglang import releases, server_args
from draftworth.errors import MeasureError
from draftworth.findings import Code, Finding, find

_AVERAGE = "avg_spec_accept_length"
_STATES = "internal_states"
_SIGNS = ("speculative_algorithm", "speculative_num_draft_tokens", "mem_fraction_static", "schedule_policy")
_LIVE = frozenset(
    {_STATES, "startup_time", "step_time_dict", _AVERAGE, "last_gen_throughput", "version", "memory_usage"}
)
_FORMULA = f"{releases.LENGTH}; an average, kept by each rank"
_SCOPE = "since the last reset"
_LONGEST = 1e6  # also keeps what is no finite number out
_SHORTEST = 1.0  # a step gives at least its bonus token
_SLACK = 1e-9


def read_page(document: Any) -> PageFacts | None:
    """Return what a parsed page tells, or None where it is none of SGLang's.

    Raises:
        MeasureError: an average acceptance length on it is not possible.
    """
    if not isinstance(document, Mapping):
        return None
    pages = _decoding(document)
    if not pages:
        return None
    first = pages[0]
    config = server_args.of_page({key: value for key, value in first.items() if key not in _LIVE})
    told: list[Told] = []
    lacking: list[str] = []
    ranks = [(where, state) for number, page in enumerate(pages) for where, state in _ranks(page, number, len(pages))]
    for where, state in ranks:
        value = _average(state)
        if value is None:
            lacking.append(where)
        else:
            scope = _SCOPE if len(ranks) == 1 else f"{_SCOPE}, {where}"
            told.append(Told(name=_AVERAGE, value=value, formula=_FORMULA, scope=scope))
    return PageFacts(
        kind="/server_info of SGLang",
        version=_text(first.get("version")),
        model=_text(first.get("model_path")) or _text(first.get("served_model_name")),
        config=config,
        told=tuple(told),
        findings=_findings(told, lacking, len(ranks), config),
    )


def _decoding(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the pages of the servers that decode: the document itself, or a router's list."""
    behind = document.get("decode")
    if isinstance(behind, list) and isinstance(document.get("prefill", []), list):
        pages = [page for page in behind if isinstance(page, Mapping)]
    else:
        pages = [document]
    return [page for page in pages if sum(sign in page for sign in _SIGNS) > 1]


def _ranks(page: Mapping[str, Any], number: int, pages: int) -> list[tuple[str, Mapping[str, Any]]]:
    server = f"decode server {number + 1}, " if pages > 1 else ""
    states = page.get(_STATES)
    if not isinstance(states, Sequence) or isinstance(states, str):
        return [(f"{server}rank 0", page)]  # 0.4.6
    return [
        (f"{server}rank {index}", state if isinstance(state, Mapping) else {}) for index, state in enumerate(states)
    ]


def _average(state: Mapping[str, Any]) -> float | None:
    value = state.get(_AVERAGE)
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) <= _LONGEST:
        raise MeasureError(f"/server_info: {_AVERAGE} is {value!r}, which is no length; is this page SGLang's own?")
    if value < _SHORTEST - _SLACK:
        raise MeasureError(
            f"/server_info: {_AVERAGE} is {value:g}, and a verified step gives at least 1 token; "
            "is this page SGLang's own?"
        )
    return float(value)


def _findings(told: list[Told], lacking: list[str], ranks: int, config: Mapping[str, str]) -> tuple[Finding, ...]:
    found: list[Finding] = []
    if told:
        found.append(find(Code.LIFETIME_AVERAGE, f"{_AVERAGE} is kept {_SCOPE}, not for one measurement"))
    if told and lacking:
        found.append(
            find(
                Code.PARTIAL_RANKS,
                f"{_AVERAGE} is told by {ranks - len(lacking)} of {ranks} ranks; not by {', '.join(lacking[:8])}",
            )
        )
    if not told and server_args.speculates(config):
        found.append(
            find(
                Code.NO_SPECULATION_SEEN,
                f"{_AVERAGE} is not on the page: it comes with the first 40 decode steps after a start or a reset",
            )
        )
    return tuple(found)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
