"""What is remarkable about one arm beside its times: what it drafted, found in a cache, or was set up as. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from draftworth.bench.base import Closed, RequestRow
from draftworth.engines import engine as engine_named
from draftworth.engines.base import Confounder, Engine, StartupFacts, sum_counts, synthetic_in
from draftworth.findings import Code, Finding, find
from draftworth.trials.base import Block
from draftworth.trials.config import BASELINE

_CACHE_APART = 0.05


@dataclass(frozen=True, slots=True)
class ArmInfo:
    """An arm as it was asked for.

    Attributes:
        name: its name.
        command: what starts it; empty for a server that runs already.
        declared: its declared difference, for the record, secrets hidden.
        config: its speculative configuration; None where it has none, or where that is not known.
        speculates: whether restarts spread as those of a speculating server do.
        engine: what serves it.
        env: its environment beyond Draftworth's own; never written to a record.
        device: what it runs on, where its log does not tell and the machine leaves no choice.
    """

    name: str
    command: tuple[str, ...] = ()
    declared: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] | None = None
    speculates: bool = False
    engine: str = "vllm"
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    device: str | None = None


def baseline_speculates(baseline: Sequence[Block], arms: Sequence[ArmInfo]) -> list[Finding]:
    """Return the finding that the baseline speculates too, where its server shows it."""
    engine = engine_named(arms[0].engine)
    how = next((told for block in baseline if (told := _speculates(block, engine))), None)
    return [find(Code.BASELINE_SPECULATES, f"the baseline's server {how}", arm=BASELINE)] if how else []


def about_arm(arm: ArmInfo, blocks: Sequence[Block]) -> list[Finding]:
    """Remarks on one variant."""
    findings = []
    counts = sum_counts([block.counts for block in blocks])
    facts = facts_of(blocks)
    synthetic = synthetic_in(arm.config, arm.env) or synthetic_in(facts.config)
    if synthetic:
        findings.append(find(Code.SYNTHETIC_ACCEPTANCE, f"{arm.name}: {synthetic}", arm=arm.name))
    if not arm.speculates:
        return findings
    if facts.speculating is False:
        message = f"{arm.name}: the engine's own configuration line says speculative_config=None"
        findings.append(find(Code.SPECULATION_OFF, message, arm=arm.name))
    elif counts is not None and counts.drafted == 0:
        findings.append(find(Code.NOTHING_DRAFTED, f"{arm.name}: 0 tokens drafted", arm=arm.name))
    elif counts is not None and counts.drafted is None and not counts.speculated:
        why = counts.not_given.get("drafted", "the server does not export it")
        findings.append(find(Code.METRICS_MISSING, f"{arm.name}: drafted tokens not known: {why}", arm=arm.name))
    return findings


def cache_share(blocks: Sequence[Block]) -> float | None:
    """Return the share of prompt tokens an arm's servers had in their prefix cache, or None where that is not told."""
    known = [block.cache for block in blocks]
    if known and all(one is not None for one in known):
        looked = sum(one[0] for one in known if one is not None)
        return sum(one[1] for one in known if one is not None) / looked if looked else None
    rows = [row for block in blocks for row in block.rows if row.ok]
    if not rows or any(row.cached_tokens is None or not row.prompt_tokens for row in rows):
        return None
    return sum(row.cached_tokens or 0 for row in rows) / sum(row.prompt_tokens or 0 for row in rows)


def warmer(arm: ArmInfo, baseline: Sequence[Block], blocks: Sequence[Block], metric: str = "tpot") -> list[Finding]:
    """Return the finding that more of the prompts were in the prefix cache in one arm than in the other.

    A variant that was left early is compared over the windows that it has too.

    Args:
        arm: the variant.
        baseline: the baseline's blocks.
        blocks: the variant's.
        metric: what the verdict is about: what the cache can have changed is bounded for TPOT.
    """
    one, other = _shares(baseline, blocks)
    if one is None or other is None or abs(one - other) <= _CACHE_APART:
        return []
    message = f"prompt tokens found in the prefix cache: baseline {one:.0%}, {arm.name} {other:.0%}"
    code = Code.PREFIX_CACHE_WARMER if other > one else Code.PREFIX_CACHE_COLDER
    # Only *slower* may stand beside it: what looks faster for a warmer cache is not told from what is.
    bounded = metric == "tpot" and code is Code.PREFIX_CACHE_COLDER
    most = _accounts_for((one, other), baseline, blocks) if bounded else None
    return [find(code, message, arm=arm.name, accounts_for=most)]


def _accounts_for(shares: tuple[float, float], baseline: Sequence[Block], blocks: Sequence[Block]) -> float | None:
    """Return the most that a share of prompt tokens, computed in one arm alone, can have changed TPOT by, as a log.

    While a request decodes, each of the others in the batch begins about once, with so many further tokens of a prompt:
    (B - 1) x further tokens / tokens of an answer, each for the time of a token of a prompt, of TPOT. That time is at
    most a decode step, and at most what the first token of an answer took over the tokens of its prompt that were not
    in the cache, where it took most (by arm and point).

    Args:
        shares: of prompt tokens found in the prefix cache, the baseline's and the variant's.
        baseline: the baseline's blocks.
        blocks: the variant's.
    """
    points = [window.point.load for block in (*baseline, *blocks) for window in block.windows]
    loads = [load.concurrency for load in points if isinstance(load, Closed)]
    rows = [[row for block in some for row in block.rows if row.timed and row.tpot_ms] for some in (baseline, blocks)]
    if not loads or len(loads) < len(points) or not all(rows):
        return None
    told = [row for some in rows for row in some]
    prompt, answer = (sum(getattr(row, name) or 0 for row in told) for name in ("prompt_tokens", "tokens"))
    plain, other = (sum(row.tpot_ms or 0.0 for row in some) / len(some) for some in rows)
    if not prompt or not answer:
        return None
    token = max(_prompt_token_ms(some, 1 - cached) for some, cached in zip(rows, shares, strict=True))
    further = abs(shares[0] - shares[1]) * prompt
    share = (max(loads) - 1) * further / answer * min(token, max(plain, other)) / other
    return abs(math.log1p(-share)) if share < 1 else None


def _prompt_token_ms(rows: Sequence[RequestRow], computed: float) -> float:
    """Return the most milliseconds that a token of a prompt took of the time to the first token, where it was most.

    Args:
        rows: of an arm.
        computed: share of prompt tokens that were not in the cache.

    Returns:
        Infinity where no row tells.
    """
    by_point: dict[str, tuple[float, float]] = {}
    for row in rows:
        if row.ttft_ms and row.prompt_tokens:
            ms, tokens = by_point.get(row.point, (0.0, 0.0))
            by_point[row.point] = ms + row.ttft_ms, tokens + row.prompt_tokens * computed
    return max((ms / tokens for ms, tokens in by_point.values() if tokens), default=math.inf)


def _shares(baseline: Sequence[Block], blocks: Sequence[Block]) -> tuple[float | None, float | None]:
    """Return the shares of the baseline and of a variant, over the windows that both have where they tell of each."""
    most = max((len(block.windows) for block in blocks), default=0)
    cut = any(len(block.windows) > most for block in baseline)
    alike = [[window.cache for window in block.windows[:most]] for block in baseline]
    if not cut or any(one is None for some in alike for one in some):
        return cache_share(baseline), cache_share(blocks)
    looked = sum(one[0] for some in alike for one in some if one is not None)
    found = sum(one[1] for some in alike for one in some if one is not None)
    return (found / looked if looked else None), cache_share(blocks)


def confounded(
    arm: ArmInfo, differ: Sequence[Confounder], baseline: Sequence[Block], blocks: Sequence[Block]
) -> list[Finding]:
    """Return the finding that an arm differs from the baseline in more than was declared, or may."""
    unknown = [name for name, some in ((BASELINE, baseline), (arm.name, blocks)) if not facts_of(some).config]
    if unknown:
        message = f"the effective configuration of {' and '.join(unknown)} is in no log, so it was not compared"
        return [find(Code.CONFOUNDED, message, arm=arm.name)]
    if not differ:
        return []
    names = ", ".join(dict.fromkeys(one.name for one in differ))
    return [find(Code.CONFOUNDED, f"{arm.name} differs from the baseline in {names}", arm=arm.name)]


def _speculates(block: Block, engine: Engine) -> str | None:
    """Return how a server that should not speculate shows that it does, or None."""
    if block.counts is not None and block.counts.speculated:
        drafted = block.counts.drafted
        return f"drafted {drafted} tokens" if drafted else "shows drafts in its counters"
    counted = block.counts is not None and block.counts.drafted is not None
    if block.facts.speculating or (counted and engine.counters_mean_speculation):
        return "is set up to speculate, though it drafted nothing: that mode costs by itself"
    return None


def facts_of(blocks: Sequence[Block]) -> StartupFacts:
    """Return the facts of the latest start that told its configuration."""
    told = [block.facts for block in blocks if block.facts.config]
    return told[-1] if told else blocks[-1].facts if blocks else StartupFacts()
