"""What prediction_gpu.py adds to vLLM's worker; in a folder of its own, which goes onto the worker's path."""

from collections.abc import Sequence
from typing import Any

import numpy as np


class Rates:
    """What the worker extension adds to vLLM's worker: other synthetic rates and other drafts, without a restart."""

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

    def draftworth_drafts(self, coverage: float) -> float:
        """Let the n-gram drafter draft k random tokens in a share of a request's steps, and nothing in the others.

        Random weights repeat one token under greedy decoding, and never repeat at temperature 1, so that a lookup finds
        everything or nothing there. Random drafts that are accepted at a configured rate make text whose tokens choose
        their experts independently, in steps of which a known share drafts (`v1/spec_decode/ngram_proposer.py`).

        Args:
            coverage: chance that a request drafts in a step; 0 is a null draft.
        """
        drafter = self.model_runner.drafter
        vocabulary = int(self.model_runner.model_config.get_vocab_size())
        random = np.random.default_rng(0)

        def propose(k: int, sampled: Sequence[Any], lengths: Any, *_: Any, **__: Any) -> list[list[int]]:
            return [
                random.integers(0, vocabulary, k).tolist()
                if len(ids) and lengths[at] + k < drafter.max_model_len and random.random() < coverage
                else []
                for at, ids in enumerate(sampled)
            ]

        drafter.propose = propose
        return coverage
