"""What the predictor asks of costs: the expectation of a step over a mixture of draft lengths."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from draftworth.costs.base import Estimate


class StepMixture(Protocol):
    """The expectation of a step; `costs.model.FittedModel` is one."""

    def expected(
        self,
        lengths: NDArray[np.float64],
        batch: int,
        context: int,
        *,
        method: tuple[str, str | None] | None = None,
    ) -> Estimate:
        """Return the expected milliseconds of a step of `batch` independent requests.

        Args:
            lengths: share of a request's steps that draft 0, 1, … tokens; adds up to 1. `[1.0]` drafts nothing.
            batch: requests in the step.
            context: tokens of each in the KV cache.
            method: None without speculation; else the speculative method and vLLM's runner, engine mode included.

        Raises:
            UsageError: nothing is known of the method's engine mode.
        """
        ...

    def by_own(
        self,
        lengths: NDArray[np.float64],
        batch: int,
        context: int,
        *,
        method: tuple[str, str | None] | None = None,
    ) -> list[Estimate]:
        """Return the expected milliseconds of a step by what one of its requests drafts.

        The d-th of the result is of steps in which one request drafts d tokens and the other `batch - 1` draft
        independently by `lengths`; their mean by `lengths` is `expected`. Arguments and errors are those of `expected`.

        Returns:
            One estimate for each of `lengths`, also for those of chance 0.
        """
        ...

    def knows(self, method: tuple[str, str | None]) -> bool:
        """Whether the engine mode of a method, on a runner (None: any), is known, measured or from the library."""
        ...
