"""Numbers for people: what is not known is said so, never shown as zero."""

from draftworth.verdicts.base import Interval


def number(value: float | None) -> str:
    """Return a number with a sensible number of digits."""
    if value is None:
        return "not known"
    if abs(value) >= 100:  # noqa: PLR2004 - three digits say enough
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"  # noqa: PLR2004 - the same


def percent(share: float | None) -> str:
    """Return a share as a percentage."""
    return "not known" if share is None else f"{100 * share:.0f} %"


def interval(found: Interval | None, unit: str = "") -> str:
    """Return an estimate with its interval."""
    if found is None:
        return "not known"
    if found.low is None or found.high is None:
        return f"{found.estimate:.3f}{unit} (too few prompts for an interval)"
    return f"{found.estimate:.3f}{unit} ({found.low:.3f} to {found.high:.3f})"
