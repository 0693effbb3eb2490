"""Which counts a vLLM of some release, started in some way, will tell.

Read in the sources of 0.8.5 to 0.33.0: `v1/metrics/loggers.py`, `v1/spec_decode/metrics.py`, and V0's
`engine/metrics.py` (with speculation until 0.9.2). Per-request figures since 0.29.0.
"""

from draftworth.engines import versions
from draftworth.engines.base import Given, Planned, StartupFacts
from draftworth.engines.counts import FIELDS
from draftworth.engines.vllm.per_request import measuring_args

_NO_STATS = "the server runs with --disable-log-stats; start it without"
_NO_SPECULATION = "the server does not speculate"
_OF_SPECULATION = frozenset({"drafting_steps", "drafted", "accepted", "accepted_per_position"})
_V0_LOG = frozenset({"drafting_steps", "drafted", "accepted"})
_V0_WHY = "the V0 engine does not count it where it speculates"
_V0_EMITTED = "/metrics, generated tokens less first tokens"
_LAST_V0 = (0, 9, 99)
_RENAMED = (0, 10, 2)
"""Since then the count of decode steps is inter_token_latency_seconds; before, time_per_output_token_seconds."""


def gives(arm: Planned, facts: StartupFacts) -> tuple[Given, ...]:
    """Return which counts a server started as this arm will tell: one entry a count.

    Args:
        arm: how it is started.
        facts: its release; without a version as the newest do.
    """
    words = {word.replace("_", "-").partition("=")[0] for word in (*arm.command, *arm.args)}
    if "--disable-log-stats" in words or facts.config.get("args.disable_log_stats") == "True":
        return tuple(Given(name=name, given=False, how=_NO_STATS) for name in FIELDS)
    speculates = arm.speculation is not None or (not arm.command and not arm.args and facts.speculating is not False)
    number = versions.number(facts.version)
    if arm.env.get("VLLM_USE_V1") == "0" and number is not None and number <= _LAST_V0:
        return tuple(_v0(name, speculates=speculates) for name in FIELDS)
    return tuple(_v1(name, number, facts.version, speculates=speculates) for name in FIELDS)


def _v1(name: str, number: versions.Release | None, version: str | None, *, speculates: bool) -> Given:
    if name == "steps":
        old = number is not None and number < _RENAMED
        series = "time_per_output_token_seconds" if old else "inter_token_latency_seconds"
        return Given(name=name, given=True, how=f"/metrics, observations of vllm:{series}")
    if name == "emitted":
        return Given(name=name, given=True, how="/metrics, generated tokens less first tokens")
    if not speculates:
        return Given(name=name, given=False, how=_NO_SPECULATION)
    answers = ", and each answer (--per-request-spec-decode-metrics)" if measuring_args(version) else ""
    return Given(name=name, given=True, how=f"/metrics, vllm:spec_decode_…{answers}")


def _v0(name: str, *, speculates: bool) -> Given:
    if name == "steps":
        return Given(name=name, given=True, how="/metrics, observations of vllm:time_per_output_token_seconds")
    if not speculates and name in _OF_SPECULATION:
        return Given(name=name, given=False, how=_NO_SPECULATION)
    if name in _V0_LOG and speculates:
        return Given(name=name, given=True, how='the log\'s "Speculative metrics" lines only; its counters add up sums')
    return Given(name=name, given=not speculates and name == "emitted", how=_V0_WHY if speculates else _V0_EMITTED)
