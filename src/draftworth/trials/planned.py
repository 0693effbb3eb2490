"""A trial's arms as an engine's rules look at them, before anything is started."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from draftworth.engines.base import Planned

if TYPE_CHECKING:
    from draftworth.trials.config import TrialConfig


def planned_arms(config: "TrialConfig", command: Sequence[str]) -> list[Planned]:
    """Return every arm of a trial, the baseline first.

    Args:
        config: the trial's file.
        command: what starts the baseline.
    """
    return [
        Planned(
            name=arm.name,
            command=tuple(command),
            env={**config.service.env, **arm.env},
            speculation=arm.speculative_config,
            args=arm.args,
        )
        for arm in (config.baseline, *config.variants)
    ]
