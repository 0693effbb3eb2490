"""`[verdict]` of a trial's file: how its record is judged, and how much is measured for that."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from draftworth.bench.config import Count, SloConfig
from draftworth.models import Strict, Words
from draftworth.trials.diagnostics import check_words
from draftworth.verdicts.rules import restart_priors


class VerdictConfig(Strict):
    """How the record is judged, and how much is measured for it."""

    metric: Literal["tpot", "ttft", "throughput", "goodput"] = "tpot"
    """What the verdict is on: time per output token, time to the first token, output tokens a second (only where
    requests are sent `concurrency` at a time), or requests a second that meet the limits of [verdict.slo]."""
    slo: SloConfig = SloConfig()
    """Limits for goodput, e.g. `{ ttft_ms = 500, tpot_ms = 40 }`."""
    margin: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """*No difference* means the whole interval of the ratio lies within 1 ± margin."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """Confidence of the intervals."""
    starts: Annotated[int, Field(ge=1, le=20)] = 1
    """How often each variant is started at most, each time with the baseline before and after it. With several, the
    trial looks at the evidence after each and ends as soon as it is enough; the error rate is kept. From three on the
    measured spread between restarts replaces the assumed one."""
    difference: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """The difference the trial should be able to see; `trial plan` says what that takes."""
    restart_sd_baseline: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Assumed standard deviation of log TPOT between restarts without speculation, used while an arm was started
    fewer than three times. Default: 0.006, and 0.07 where the server's log shows that it runs on a CPU (measured: up to
    0.57 % and 6.8 %, see docs/statistics.md)."""
    restart_sd_variant: Annotated[float, Field(ge=0, lt=1)] | None = None
    """The same with speculation. Default: 0.08 (measured: 5 to 8 % with n-gram drafts)."""
    restart_sd_ttft: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """The same of log TTFT in every arm, for verdicts on ttft and goodput (measured: 1 to 10 % without speculation)."""
    output_check: bool = True
    """Score the variant's greedy tokens on the baseline server. Switched off, *faster* says nothing about the text."""
    output_check_prompts: Count = 48
    """At most this many outputs of each arm are scored."""
    diagnostics: Words = ()
    """What only measures, for `draftworth explain`: `"probe"` (step costs of the baseline, up to 45 s, no start),
    `"profile"` (baseline and first variant under vLLM's profiler, a start each; not of a unit or of endpoints), and
    arms: `"sync"` (no speculation, and the scheduling that n-gram gets), `"null-draft"` (speculation on, nothing
    drafted), `"synthetic:1.5,2.0"` (drafts accepted at a configured length). One start each; the verdict is never about
    them."""

    @field_validator("diagnostics")
    @classmethod
    def _are_diagnostics(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        check_words(value)
        return value

    @model_validator(mode="after")
    def _limits_stated(self) -> "VerdictConfig":
        if self.metric == "goodput" and not self.slo.stated:
            raise ValueError("a verdict on goodput needs a limit: slo = { ttft_ms = …, tpot_ms = … } in [verdict]")
        return self

    def restart_priors(self, device: str | None) -> tuple[float, float]:
        """Return the assumed spread of log TPOT between restarts, without and with speculation.

        Args:
            device: what the server runs on; None where that is not known.
        """
        base, other = restart_priors(device)
        stated = self.restart_sd_baseline, self.restart_sd_variant
        return base if stated[0] is None else stated[0], other if stated[1] is None else stated[1]
