"""Says which counts a server will give, by its release and the options it starts with.

None of the options has a command-line form before PR #19555: `return_perf_metrics` makes `/prometheus/metrics` exist,
`enable_iter_perf_stats` fills `/metrics` and the counters by iteration (`llmapi/llm_args.py`,
`serve/openai_server.py`; the TensorRT backend always has iteration statistics). Both are off unless switched on.
"""

from collections.abc import Iterator

from draftworth.engines.base import Doubt, Given, Planned, StartupFacts
from draftworth.engines.counts import FIELDS
from draftworth.engines.trtllm import releases
from draftworth.engines.trtllm.planned import Settings, settings_of, switched_on

_PAGE, _ITERATIONS = "return_perf_metrics", "enable_iter_perf_stats"
_WANTED = {
    _PAGE: "there is no /prometheus/metrics, so no acceptance and no count of requests",
    _ITERATIONS: "/metrics stays empty and no drafts are counted by iteration",
}
_ANSWERS = "each answer's avg_decoded_tokens_per_iter beside its tokens"
_NO_SPECULATION = "the arm does not speculate"


def doubts(settings: Settings, facts: StartupFacts) -> Iterator[Doubt]:
    """Yield what to switch on so that the arm can be measured."""
    state = {name: switched_on(name, settings, facts) for name in _WANTED}
    where = settings.file or "a file behind --extra_llm_api_options"
    for name, on in state.items():
        if on is False:
            yield Doubt(
                code="not_counted",
                severity="note",
                what=f"without {name}: true, {_WANTED[name]}",
                fix=f"add {name}: true to {where}, in every arm",
            )
    unknown = [f"{name}: true" for name, on in state.items() if on is None]
    if unknown:
        yield Doubt(
            code="counts_not_known",
            severity="note",
            what=f"counts need {' and '.join(unknown)} in {where}, which cannot be read here",
            fix="check that every arm's file has them",
        )


def gives(arm: Planned, facts: StartupFacts) -> tuple[Given, ...]:
    """Return which counts a server started as this arm will tell: one entry a count."""
    settings = settings_of(arm)
    page, iterations = (switched_on(name, settings, facts) for name in (_PAGE, _ITERATIONS))
    return tuple(_given(name, settings, facts, page=page, iterations=iterations) for name in FIELDS)


def _given(name: str, settings: Settings, facts: StartupFacts, *, page: bool | None, iterations: bool | None) -> Given:
    if name in ("steps", "emitted"):
        old = releases.before(facts.version, 1)
        return Given(name=name, given=not old, how="releases before 1.0 tell none in answers" if old else _ANSWERS)
    if not settings.speculates and (settings.shown or facts.speculating is False):
        return Given(name=name, given=False, how=_NO_SPECULATION)
    counted = releases.before(facts.version, 1, 3) is not True
    if counted and page:
        return Given(name=name, given=True, how="/prometheus/metrics, counters by token_position (1.3.0rc and later)")
    filled = not releases.before(facts.version, 1, 2) or settings.speculation.get("decoding_type") == "NGram"
    if name != "accepted_per_position" and filled and iterations:
        return Given(name=name, given=True, how="/metrics, iteration statistics")
    return Given(name=name, given=False, how=_why(name, counted=counted, filled=filled, known=page is not None))


def _why(name: str, *, counted: bool, filled: bool, known: bool) -> str:
    if counted:
        return "needs return_perf_metrics: true in the options file" + ("" if known else ", which cannot be read here")
    if name == "accepted_per_position":
        return "releases before 1.3.0rc count nothing by position"
    if filled:
        return "releases before 1.3.0rc tell it only in /metrics, with enable_iter_perf_stats: true in the options file"
    return "releases before 1.2 fill the statistics of no drafter but NGram"
