"""What a search has found: the best setting over all loads and at each, as something to paste."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from draftworth import redact
from draftworth.errors import DraftworthError
from draftworth.predict.schedule import ranges
from draftworth.search.base import BASELINE
from draftworth.search.dialects import DIALECTS
from draftworth.search.record import BestAt, SearchRecord
from draftworth.trials.search_unchecked import Earlier
from draftworth.verdicts.base import CategoryComparison, Comparison, Verdict
from draftworth.verdicts.rules import HIGHER_IS_BETTER

if TYPE_CHECKING:
    from draftworth.bench.points import Point
    from draftworth.engines.base import Engine
    from draftworth.trials.record import ArmComparison
    from draftworth.trials.remarks import ArmInfo

_TWO = 2


def with_best(
    search: SearchRecord,
    comparisons: Sequence["ArmComparison"],
    earlier: Earlier,
    *,
    arms: Sequence["ArmInfo"],
    sweep: Sequence["Point"],
    engine: "Engine",
    checked: bool = True,
) -> SearchRecord:
    """Return the record of a search with the best settings.

    Best is what is called faster and gains most; where nothing is, the baseline.

    Args:
        search: what was tried.
        comparisons: of this trial.
        earlier: of the trials that it continues.
        arms: every arm, the baseline first.
        sweep: the points of the workload.
        engine: knows how a configuration is written as flags.
        checked: whether outputs are checked: a setting whose output is not the same is best at no load then.
    """
    names = {one.name for one in search.tried}
    found: list[tuple[str | None, ArmComparison]] = [(None, one) for one in comparisons if one.arm in names]
    here = {one.arm for _, one in found}
    found += [told for name, told in earlier.items() if name in names and name not in here]
    if not found:
        return search.model_copy(update={"best": (BestAt(load=None, arm=BASELINE),)})
    infos = {arm.name: arm for arm in arms}
    over_all = _best(None, [(trial, one.arm, one) for trial, one in found], infos, engine)
    if checked:
        found = [told for told in found if told[1].output_check is not None and told[1].output_check.status == "same"]
    best = [over_all]
    for point in sweep if len(sweep) > 1 else ():
        concurrency = getattr(point.load, "concurrency", None)
        groups = [
            (trial, one.arm, group)
            for trial, one in found
            for group in one.categories
            if group.kind == "point" and group.category == point.label
        ]
        at = _best(concurrency, groups, infos, engine)
        if at.arm != over_all.arm:
            best.append(at)
    return search.model_copy(update={"best": tuple(best), "schedule": _schedule(over_all, found, infos, sweep)})


def _schedule(
    best: BestAt,
    found: Sequence[tuple[str | None, "ArmComparison"]],
    infos: Mapping[str, "ArmInfo"],
    sweep: Sequence["Point"],
) -> dict[str, Any] | None:
    """Return one configuration of vLLM with the best k at each load, of settings that differ from the best in k alone.

    Drafting is off (k of 0) at loads where none was faster, by what was measured.
    """
    key = "num_speculative_tokens"
    info = infos.get(best.arm)
    if info is None or info.engine != "vllm" or not best.config or key not in best.config or len(sweep) < _TWO:
        return None
    alike = {**best.config, key: None}
    ks: dict[int, int] = {}
    for point in sweep:
        load, gains = getattr(point.load, "concurrency", None), {}
        for _, one in found:
            config = dict(infos[one.arm].config or {}) if one.arm in infos else {}
            group = next((each for each in one.categories if each.category == point.label), None)
            if group is None or group.ratio is None or {**config, key: None} != alike:
                continue
            higher = group.metric in HIGHER_IS_BETTER
            gains[config[key]] = group.ratio.estimate if higher else 1 / group.ratio.estimate
        if load is None or not gains or load in ks:
            return None
        k = max(gains, key=lambda one: (gains[one], -one))
        ks[load] = k if gains[k] > 1 else 0
    if len(set(ks.values())) < _TWO:
        return None
    table = [list(one) for one in ranges(ks)]
    return {**best.config, key: max(ks.values()), "num_speculative_tokens_per_batch_size": table}


def _best(
    load: int | None,
    some: Sequence[tuple[str | None, str, Comparison | CategoryComparison]],
    infos: Mapping[str, "ArmInfo"],
    engine: "Engine",
) -> BestAt:
    faster = [told for told in some if told[2].verdict is Verdict.FASTER and told[2].ratio is not None]
    if not faster:
        return BestAt(load=load, arm=BASELINE)

    def gain(told: tuple[str | None, str, Comparison]) -> float:
        ratio = told[2].ratio
        assert ratio is not None, "chosen above"
        return ratio.estimate if told[2].metric in HIGHER_IS_BETTER else -ratio.estimate

    trial, name, one = max(faster, key=gain)
    info = infos.get(name)
    config = None if info is None or info.config is None else dict(info.config)
    check = getattr(one, "output_check", None)
    return BestAt(
        load=load,
        arm=name,
        ratio=one.ratio,
        verdict=one.verdict,
        trial=trial,
        output=None if check is None else check.status,
        config=config,
        flags=() if config is None else flags_of(engine, config),
    )


def flags_of(engine: "Engine", config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a speculative configuration adds to a command, secrets hidden; nothing where that is no flags."""
    words = DIALECTS.get(engine.name)
    if words is None:
        return ()
    try:
        full = engine.with_speculation(words.bare, dict(config))
    except DraftworthError:  # a trial that was measured is not lost for a line to paste
        return ()
    return tuple(redact.command(full[len(words.bare) :]))
