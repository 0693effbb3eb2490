"""What prediction_gpu.py adds to vLLM's worker; in a folder of its own, which goes onto the worker's path."""

from typing import Any


class Rates:
    """What the worker extension adds to vLLM's worker: other synthetic rates and lookups, without a restart."""

    model_runner: Any

    def draftworth_rates(self, length: float, k: int) -> list[float]:
        """Set the rates to those vLLM itself makes of a length: 1, 1, …, the rest, 0 (`config/speculative.py`).

        Args:
            length: acceptance length per drafting step, 1 to k + 1.
            k: num_speculative_tokens.
        """
        survival = [min(max(length - 1 - position, 0.0), 1.0) for position in range(k)]
        before = [1.0, *survival[:-1]]
        conditional = [now / last if last > 0 else 0.0 for now, last in zip(survival, before, strict=True)]
        rates = self.model_runner.rejection_sampler.synthetic_conditional_rates
        rates.copy_(rates.new_tensor(conditional))
        return survival

    def draftworth_window(self, low: int, high: int) -> list[int]:
        """Let the n-gram drafter match other lengths (`v1/spec_decode/ngram_proposer.py` reads both in each step).

        Args:
            low: prompt_lookup_min; 60 finds next to nothing, so that nothing is drafted.
            high: prompt_lookup_max.
        """
        drafter = self.model_runner.drafter
        before = [int(drafter.min_n), int(drafter.max_n)]
        drafter.min_n, drafter.max_n = int(low), int(high)
        return before
