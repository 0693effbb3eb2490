"""Reads vLLM's JSON: its `/version` page, and answers that carry their figures of speculation.

`{"version": "0.32.0"}` is the same in 0.8.5 (`entrypoints/openai/api_server.py`) and 0.33.0
(`entrypoints/serve/instrumentator/basic.py`). Other servers have such a page too, so only the versions that vLLM has
had, 0.x, are taken for its own. Answers: see `per_request.py`. vLLM's `/server_info` is served in development mode
only, and is not read.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from draftworth.engines.base import PageFacts, Told
from draftworth.engines.vllm.per_request import request_counts, request_stats

_VERSION = re.compile(r"0\.\d[\w.+!-]{0,60}")
_FORMULAS = {
    "mean_acceptance_length": "1 + accepted / drafting steps; 1 where no step drafted",
    "draft_acceptance_rate": "accepted / drafted; 0 where nothing was drafted",
}


def read_page(document: Any) -> PageFacts | None:
    """Return what a parsed JSON document of vLLM tells, or None where it is none.

    Understood are the page `/version`, a response, a stream's last chunk, and a list of responses or chunks. Chunks of
    one stream count as one answer.

    Raises:
        MeasureError: an answer's figures have another form, or contradict each other.
    """
    if isinstance(document, Mapping):
        version = document.get("version")
        if len(document) == 1 and isinstance(version, str) and _VERSION.fullmatch(version):
            return PageFacts(kind="/version of vLLM", version=version)
        return _answers([document])
    return _answers(document) if isinstance(document, list) else None


def _answers(documents: Sequence[Any]) -> PageFacts | None:
    answers: dict[Any, Mapping[str, Any] | None] = {}
    models: dict[str, None] = {}
    for index, one in enumerate(documents):
        if not isinstance(one, Mapping):
            return None
        name = one.get("id")
        key = name if isinstance(name, str) else index
        answers[key] = request_stats(one) or answers.get(key)
        model = one.get("model")
        if isinstance(model, str):
            models[model] = None
    counts = request_counts(list(answers.values()), None)
    if counts is None:
        return None
    kind = "an answer of vLLM" if len(answers) == 1 else f"{len(answers)} answers of vLLM"
    return PageFacts(
        kind=kind,
        model=next(iter(models)) if len(models) == 1 else None,
        counts=counts,
        told=_told(next(iter(answers.values()))) if len(answers) == 1 else (),
    )


def _told(stats: Mapping[str, Any] | None) -> tuple[Told, ...]:
    figures = {name: (stats or {}).get(name) for name in _FORMULAS}
    return tuple(
        Told(name=name, value=value, formula=_FORMULAS[name], scope="this answer")
        for name, value in figures.items()
        if isinstance(value, float) and math.isfinite(value)
    )
