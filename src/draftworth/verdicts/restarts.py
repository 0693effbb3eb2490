"""Restarts as a level of their own: what every start of a server draws anew, and how well that is known.

The table of one arm has a row a start and a column a prompt. Its entries y(s, i) are a prompt's part of the start's log
(see `intervals.linear`), so the mean of a row is the log of that start and the rows differ by restarts and by the noise
of requests. Analysis of variance takes them apart:

    MS_start    = n sum_s (y(s, .) - y(., .))^2 / (S - 1)                           expects n sd_restart^2 + noise
    MS_residual = sum (y(s, i) - y(s, .) - y(., i) + y(., .))^2 / ((S - 1)(n - 1))  expects noise
    sd_restart^2 = max(0, MS_start - MS_residual) / n

(Searle, Casella and McCulloch 1992, "Variance Components", chapter 4.) The noise is taken off because the spread of the
prompts holds it already.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

STARTS_TO_ESTIMATE = 3
"""Fewest starts of an arm whose own spread replaces the prior."""
CONTRADICTION = 1.642
"""Two starts replace the prior where their mean square is this many times what the prior expects: the 80th percentile
of chi-squared with one degree of freedom. At 1 (the larger of the two) intervals cover 97.2 % where the prior is true;
the higher, the less two starts can say against a prior that is too small."""
PLAUSIBLE = 1 / 3
"""Degrees of freedom are counted as if a restart variance were at its upper limit of this one-sided error.

Welch-Satterthwaite with the estimates themselves gives many degrees of freedom exactly when a variance from two or
four degrees of freedom came out small by chance: with three starts its 95 % covers down to 92.0 %. With the upper
third it covers 94 to 97 %, and up to 98 % where prompts differ by nothing but the noise of requests and restarts
by nothing."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """The restart part of the variance of a log ratio; arrays over trials (of shape () for one).

    Attributes:
        variance: sum over the arms of sd_restart^2 / starts.
        known: how much of it comes from a prior.
        plausible: upper values of what was estimated, summed, for the degrees of freedom.
        spread: sum of plausible^2 / degrees of freedom.
    """

    variance: Floats
    known: Floats
    plausible: Floats
    spread: Floats

    def __add__(self, other: "Restarts") -> "Restarts":
        """Return the two arms' parts together."""
        return Restarts(
            self.variance + other.variance,
            self.known + other.known,
            self.plausible + other.plausible,
            self.spread + other.spread,
        )


NO_RESTARTS = Restarts(*(np.zeros(()) for _ in range(4)))
"""Nothing is added for restarts: the interval is about these starts."""


def arm_restarts(table: Floats, prior: float) -> Restarts:
    """Return one arm's restart part.

    With fewer than three starts: the stated prior, taken as known. Two starts that contradict it (`CONTRADICTION`)
    replace it by what they show. From three starts on: what they show, with S - 1 degrees of freedom.

    Args:
        table: entries y(s, i), shape (..., starts, prompts); for one prompt the noise cannot be told from restarts and
            nothing is taken off.
        prior: stated sd of the log between restarts.
    """
    starts, n = table.shape[-2:]
    nothing = np.zeros(table.shape[:-2])
    if starts == 1:
        known = nothing + prior**2
        return Restarts(known, known, nothing, nothing)
    means = table.mean(axis=-1, keepdims=True)
    grand = means.mean(axis=-2, keepdims=True)
    between = n * ((means - grand) ** 2).sum(axis=(-2, -1)) / (starts - 1)
    residuals = table - means - table.mean(axis=-2, keepdims=True) + grand
    within = (residuals**2).sum(axis=(-2, -1)) / max((starts - 1) * (n - 1), 1)
    shown = np.maximum(between - within, 0.0) / n
    if starts < STARTS_TO_ESTIMATE:
        contradicts = between > CONTRADICTION * (within + n * prior**2)
        known = np.where(contradicts, np.maximum(shown, prior**2), prior**2) / starts
        return Restarts(known, known, nothing, nothing)
    inflation = (starts - 1) / float(special.chdtri(starts - 1, 1 - PLAUSIBLE))
    upper = np.where(shown > 0, inflation * between, 0.0) / (n * starts)
    noise = np.where(shown > 0, within, 0.0) / (n * starts)
    spread = upper**2 / (starts - 1) + noise**2 / max((starts - 1) * (n - 1), 1)
    return Restarts(shown / starts, nothing, np.maximum(upper - noise, 0.0), spread)
