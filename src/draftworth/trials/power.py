"""What a planned trial can see, before anything is measured: for `trial plan`."""

from draftworth.models import Frozen
from draftworth.trials.config import CommonConfig, TrialConfig
from draftworth.verdicts.power import detectable, needed

POWER = 0.8


class Power(Frozen):
    """What a trial can see.

    Attributes:
        difference: the difference that is to be seen, as a share.
        prompts: prompts the trial has.
        starts: starts of the baseline and of each variant, at most.
        detectable: the smallest difference it shows in 80 of 100 trials, with the usual spread between prompts.
        prompts_needed: prompts that show `difference` with these starts; None where no number does.
        starts_needed: starts of each arm without which no number of prompts does; None where these do.
        reason: why not, in one sentence; empty where it can.
        search: whether it is about a setting of a search, which starts each once.
    """

    difference: float
    prompts: int
    starts: tuple[int, int]
    detectable: float | None
    prompts_needed: int | None
    starts_needed: int | None
    reason: str = ""
    search: bool = False

    @property
    def line(self) -> str:
        """The same for a person."""
        wanted = f"{100 * self.difference:.3g} %"
        of = f"{self.starts[0]} starts of the baseline and {self.starts[1]} of a variant"
        sees = "no difference" if self.detectable is None else f"differences from {100 * self.detectable:.2g} % on"
        told = f"Power: with {self.prompts} prompts and {of} it sees {sees} in 80 of 100 trials (usual spread). "
        if self.prompts_needed is not None:
            return f"{told}To see {wanted} takes {self.prompts_needed} prompts."
        starts = ""
        if self.starts_needed and self.search:
            starts = f" (a trial of the best setting alone: verdict.starts = {self.starts_needed})"
        elif self.starts_needed and self.starts != (1, 1):
            starts = f" (verdict.starts = {self.starts_needed})"
        return f"{told}To see {wanted} no number of prompts is enough: {self.reason}{starts}."


def power_of(
    config: CommonConfig,
    *,
    prompts: int,
    starts: tuple[int, int],
    looks: int,
    variants: float,
    device: str | None = None,
) -> Power:
    """Return what a trial can see.

    Args:
        config: its file.
        prompts: prompts in its workload.
        starts: starts of the baseline and of each variant, at most.
        looks: looks at the evidence, at most.
        variants: variants that are compared with the baseline.
        device: what the servers run on; None where it is not known.
    """
    rules = config.verdict
    base_sd, other_sd = rules.restart_priors(device)
    if rules.metric in {"ttft", "goodput"}:
        base_sd = other_sd = rules.restart_sd_ttft
    level = 1 - (1 - rules.confidence) / variants
    found = needed(
        rules.difference,
        restart_sd_baseline=base_sd,
        restart_sd_variant=other_sd,
        starts=starts,
        confidence=level,
        power=POWER,
        looks=looks,
    )
    sees = None
    if prompts > 1:
        sees = detectable(
            prompts,
            restart_sd_baseline=base_sd,
            restart_sd_variant=other_sd,
            starts=starts,
            confidence=level,
            power=POWER,
            looks=looks,
        )
    return Power(
        difference=rules.difference,
        prompts=prompts,
        starts=starts,
        detectable=sees,
        prompts_needed=found.prompts,
        starts_needed=found.starts_needed,
        reason=found.reason.rstrip("."),
        search=isinstance(config, TrialConfig) and config.search is not None,
    )
