"""Prompt lookup of transformers: the earliest occurrence of the longest n-gram, from the longest down to one token.

Read from transformers 5.19.0, generation/candidate_generator.py (PromptLookupCandidateGenerator) and the loop that
calls it, generation/utils.py (_assisted_decoding). The draft is cut before the first end-of-sequence token. Nothing is
drafted when one token is left to max_length; any other draft may pass it. Logits processors that forbid tokens, which
also cut drafts, are not in a recording and not replayed.

transformers drafts behind the prompt already and verifies that draft together with prefill. That pass is no decode
step: a replay begins behind the first output token, as for every other drafter.
"""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from draftworth.drafters.base import Limits, Session, Setting
from draftworth.drafters.limits import check_k
from draftworth.drafters.windows import EOS, GRID_K, NgramSession, Rules, checked, continuation, none_of
from draftworth.errors import UsageError

DEFAULT_K = 10
"""The generator's own default of num_output_tokens; `generate` asks for a value of prompt_lookup_num_tokens."""
DEFAULT_MAX = 2
"""max_matching_ngram_size when it is not set."""
GRID_MAX = (1, 2, 3, 4, 5, 6, 8, 10)


class HFPromptLookup:
    """`hf-prompt-lookup`: k is prompt_lookup_num_tokens, max is max_matching_ngram_size."""

    name = "hf-prompt-lookup"
    title = "transformers' prompt lookup: earliest match of up to max tokens"
    engine = "transformers"
    shared = False
    always_verifies = False
    source = "transformers 5.19.0, generation/candidate_generator.py"

    def settings(
        self,
        *,
        k: Sequence[int] | None = None,
        min: Sequence[int] | None = None,  # noqa: A002 - the contract's own word
        max: Sequence[int] | None = None,  # noqa: A002 - the contract's own word
        more: Mapping[str, Sequence[float]] | None = None,
    ) -> list[Setting]:
        """Return the grid of these values, see `draftworth.drafters.base.Drafter`.

        Args:
            k: values of prompt_lookup_num_tokens.
            min: must be None: the shortest n-gram is one token.
            max: values of max_matching_ngram_size.
            more: `eos_token_id`, before which drafts are cut; without it they are not.

        Raises:
            UsageError: min or an unknown parameter is given, or a value is out of its range.
        """
        if min is not None:
            raise UsageError(f"{self.name} has no parameter 'min': its shortest n-gram is always one token")
        none_of(self.name, more, (EOS,))
        ks = checked("prompt_lookup_num_tokens", (DEFAULT_K,) if k is None else k)
        check_k("prompt_lookup_num_tokens", ks)
        longest = checked("max_matching_ngram_size", (DEFAULT_MAX,) if max is None else max)
        others = [{EOS: end} for end in _ends((more or {})[EOS])] if EOS in (more or {}) else [{}]
        return [Setting(one, None, n, other) for other in others for n in longest for one in ks]

    def grid(self) -> list[Setting]:
        """Return 64 settings: eight draft lengths for each of eight longest n-grams."""
        return [Setting(k, None, n) for n in GRID_MAX for k in GRID_K]

    def arguments(self, setting: Setting) -> tuple[str, ...]:
        """Return nothing: prompt lookup is a parameter of `generate` (`prompt_lookup_num_tokens`), no server's flag."""
        del setting
        return ()

    def state(self, setting: Setting, limits: Limits, longest: int) -> Hashable:
        """Return the same for all: requests share nothing."""
        del setting, limits, longest
        return None

    def session(self, settings: Sequence[Setting], limits: Limits) -> Session:
        """Begin a replay; `limits.max_model_len` is transformers' max_length."""
        bound = limits.max_model_len
        return NgramSession(settings, Rules(latest=False, barred=None if bound is None else bound - 1))


def draft(context: NDArray[np.int32], setting: Setting, limits: Limits) -> NDArray[np.int32]:
    """Return the draft that the engine's drafter makes for one context; empty where it makes none.

    Args:
        context: int32, the request's prompt and output so far, at most max_length.
        setting: k and max, and `eos_token_id` where drafts are cut.
        limits: max_model_len is transformers' max_length.
    """
    if limits.max_model_len == len(context) + 1:
        return np.empty(0, dtype=np.int32)
    found = continuation(context, setting, latest=False)
    if EOS in setting.more:
        cut = np.flatnonzero(found == setting.more[EOS])
        return found[: cut[0]] if cut.size else found
    return found


def _ends(values: Sequence[float]) -> list[float]:
    """Return token ids, each once.

    Raises:
        UsageError: there is none, or one is not a token id.
    """
    if not values:
        raise UsageError(f"{EOS}: no value given")
    for value in values:
        if value != int(value) or not 0 <= value < 2**31:
            raise UsageError(f"{EOS} must be a token id: got {value:g}")
    return list(dict.fromkeys(values))
