"""Two profiles, class by class: what a step and what an output token costs in each."""

from draftworth.profiles.base import CLASSES, Compared, Difference, Profile, Spread, StepTime
from draftworth.profiles.spread import ENOUGH, difference, few_steps, scaled

_ALIKE = 0.1
"""How far apart two means of requests a step may be before the comparison is not of the same load."""


def compare(base: Profile, variant: Profile) -> Compared:
    """Return what differs between two profiles.

    A step of the variant does more where drafts are verified and gives more than one token: so both are told, the step
    and the token, each only where the numbers of steps and tokens are known of both.
    """
    return Compared(
        base=base,
        variant=variant,
        per_step=_differences(base, variant, base.steps, variant.steps),
        per_token=_differences(base, variant, base.tokens, variant.tokens),
        shares=tuple(
            (name, _share(base, ms), _share(variant, other)) for name, ms, other in _lines(base, variant, total=False)
        ),
        notes=_notes(base, variant),
    )


def like_loads(base: Profile, variant: Profile) -> bool:
    """Return whether steps of both carry about as many requests, as far as that is known."""
    one, other = _requests(base), _requests(variant)
    return not one or not other or abs(other / one - 1) <= _ALIKE


def _requests(profile: Profile) -> float | None:
    """Return the requests of a step on average."""
    return profile.request_steps / profile.steps if profile.request_steps and profile.steps else None


def _differences(
    base: Profile, variant: Profile, of_base: float | None, of_variant: float | None
) -> tuple[Difference, ...]:
    if not of_base or not of_variant:
        return ()
    return tuple(
        Difference(
            name=name,
            base_ms=one / of_base,
            variant_ms=other / of_variant,
            interval=_interval((base, of_base), (variant, of_variant), name),
        )
        for name, one, other in _lines(base, variant, total=True)
    )


def _interval(base: tuple[Profile, float], variant: tuple[Profile, float], name: str) -> Spread | None:
    """Return the interval of a line's difference, a step or a token; the number of tokens is taken as given."""
    one, other = (_told(profile, name, units) for profile, units in (base, variant))
    return None if one is None or other is None else difference(one, other)


def _told(profile: Profile, name: str, units: float) -> StepTime | None:
    if not profile.per_step or not profile.steps:
        return None
    found = next((one for one in profile.per_step if one.name == name), None)
    if found is None:  # a class that took nothing, in as many steps as the others
        known = any(one.interval is not None for one in profile.per_step)
        return StepTime(name=name, ms=0.0, interval=Spread(low_ms=0.0, high_ms=0.0) if known else None)
    return scaled(found, profile.steps / units)


def _lines(base: Profile, variant: Profile, *, total: bool) -> list[tuple[str, float, float]]:
    """Return each line's milliseconds in both spans; a class that one of them lacks took 0 there."""
    occur = {one.name for profile in (base, variant) for one in profile.classes}
    found: list[tuple[str, float, float]] = [
        (name, base.of(name), variant.of(name)) for name in CLASSES if name in occur
    ]
    if base.host_ms is None or variant.host_ms is None:
        found.append(
            ("idle and host", base.idle_ms + (base.host_ms or 0.0), variant.idle_ms + (variant.host_ms or 0.0))
        )
    else:
        found += [("idle", base.idle_ms, variant.idle_ms), ("host", base.host_ms, variant.host_ms)]
    return [*found, ("total", base.span_ms, variant.span_ms)] if total else found


def _share(profile: Profile, ms: float) -> float:
    return ms / profile.span_ms if profile.span_ms else 0.0


def _notes(base: Profile, variant: Profile) -> tuple[str, ...]:
    notes = []
    if base.steps and variant.steps and any(few_steps(one.steps, one.per_step) for one in (base, variant)):
        notes.append(
            f"{base.steps} and {variant.steps} decode steps: figures are without intervals (they take {ENOUGH} steps "
            "that each trace tells); differences may be chance"
        )
    if base.engine != variant.engine:
        notes.append(f"different engines: {base.engine or 'not told'} and {variant.engine or 'not told'}")
    if base.device.partition(": ")[2] != variant.device.partition(": ")[2] or (
        (base.device == "cpu") != (variant.device == "cpu")
    ):
        notes.append(f"different devices: {base.device} and {variant.device}")
    ranks = max(len(base.ranks), 1), max(len(variant.ranks), 1)
    if ranks[0] != ranks[1]:
        notes.append(f"different numbers of ranks: {ranks[0]} and {ranks[1]}")
    if not like_loads(base, variant):
        one, other = (_requests(profile) or 0.0 for profile in (base, variant))
        notes.append(f"a step carries {one:.2f} and {other:.2f} requests on average: the loads differ, and so do steps")
    if (base.request_steps is None) != (variant.request_steps is None) or (base.steps is None) != (
        variant.steps is None
    ):
        notes.append("decode was told in different ways, see above")
    for what, known in (("steps", (base.steps, variant.steps)), ("tokens", (base.tokens, variant.tokens))):
        missing = [name for name, number in zip(("base", "variant"), known, strict=True) if not number]
        if missing:
            notes.append(f"no figures per {what[:-1]}: {what} of the {' and the '.join(missing)} not known; --{what}")
    if not base.complete or not variant.complete:
        notes.append("a file was not read to its end")
    return tuple(notes)
