"""vLLM's `suffix`: the most frequent continuation of the longest matches, in the request and in earlier outputs.

vLLM hands its tokens to Arctic Inference's suffix cache: a tree of each running request's prompt and output, and one of
the outputs of the last requests. A step drafts a path, as long as the match allows (the factor) and its probability
lasts. Requests learn from each other, so their order and how many are decoded at a time matter.

Two things that a recording cannot tell: an engine may have added accepted tokens behind a stop, which were cut from the
answer; and how running requests were interleaved, for which `Limits.concurrency` stands, drained at the end of a batch.

Sources: vLLM 0.32.0, vllm/v1/spec_decode/suffix_decoding.py and config/speculative.py; arctic_inference 0.1.1, which
vLLM asks for (its suffix_decoding is the same in 0.3.0).
"""

from collections.abc import Hashable, Mapping, Sequence
from itertools import product

from draftworth.drafters.base import Limits, Setting
from draftworth.drafters.limits import check_k
from draftworth.drafters.rounds import own_state
from draftworth.drafters.suffix_session import CACHED, DEFAULTS, DEPTH, FACTOR, LEAST, SuffixSession
from draftworth.drafters.vllm_config import speculative_config
from draftworth.errors import UsageError

_MOST_DEPTH = 1024


def _refused(name: str, value: float) -> str | None:
    """Return why a value is refused, None if it is not; vLLM's own bounds, and ours on size."""
    whole = name in {DEPTH, CACHED}
    if value != value or (whole and value != int(value)):  # noqa: PLR0124 - NaN
        return "must be a whole number" if whole else "must be a number"
    if name == DEPTH and not 1 <= value <= _MOST_DEPTH:
        return f"must be 1 to {_MOST_DEPTH}"
    if name in {CACHED, FACTOR} and value < 0:
        return "must be 0 or more"
    if name == LEAST and not 0 <= value <= 1:
        return "must be 0 to 1"
    return None


class VLLMSuffix:
    """The drafter of vLLM's `{"method": "suffix"}`."""

    name = "vllm-suffix"
    title = "vLLM suffix decoding (Arctic Inference): continuations of earlier outputs and of the prompt, by frequency"
    engine = "vllm"
    shared = True
    always_verifies = False
    source = (
        "vLLM 0.32.0 vllm/v1/spec_decode/suffix_decoding.py; arctic_inference 0.1.1 csrc/suffix_decoding/suffix_tree.cc"
    )

    def settings(
        self,
        *,
        k: Sequence[int] | None = None,
        min: Sequence[int] | None = None,  # noqa: A002 - the engines' own word
        max: Sequence[int] | None = None,  # noqa: A002 - the engines' own word
        more: Mapping[str, Sequence[float]] | None = None,
    ) -> list[Setting]:
        """Return the grid of these values, vLLM's defaults where none is given; k is the depth where it is not given.

        Raises:
            UsageError: the algorithm has no such parameter, or a value is out of its range.
        """
        if min is not None or max is not None:
            raise UsageError(
                f"{self.name} has no n-gram length: leave out min and max, give {DEPTH} if you mean its depth"
            )
        values: dict[str, Sequence[float]] = {name: (value,) for name, value in DEFAULTS.items()}
        for name, given in (more or {}).items():
            if name not in values:
                raise UsageError(f"{self.name} has no parameter {name!r}: it has k, {', '.join(values)}")
            if not given:
                raise UsageError(f"{self.name}: no value is given for {name}")
            for value in given:
                why = _refused(name, value)
                if why is not None:
                    raise UsageError(f"{self.name}: {name}={value:g} {why}")
            values[name] = given
        if k is not None and not k:
            raise UsageError(f"{self.name}: no value is given for k")
        check_k(f"{self.name}: k", k or ())
        found = []
        for point in product(*values.values()):
            parameters = dict(zip(values, point, strict=True))
            found += [Setting(k=each, more=parameters) for each in k or (int(parameters[DEPTH]),)]
        return found

    def grid(self) -> list[Setting]:
        """Return the settings worth trying: k, factor and least probability over trees of vLLM's default depth."""
        return self.settings(
            k=(2, 3, 5, 8, 12, 16, 24), more={FACTOR: (0.5, 1.0, 2.0, 4.0), LEAST: (0.05, 0.1, 0.2, 0.4)}
        )

    def arguments(self, setting: Setting) -> tuple[str, ...]:
        """Return vLLM's `--speculative-config`."""
        return speculative_config("suffix", setting)

    def state(self, setting: Setting, limits: Limits, longest: int) -> Hashable:
        """Return what the shared tree depends on: its depth and size, and the steps where these tell what is put in.

        They do with several requests at a time, and where a request reaches max_model_len: what a step emits there is
        not put in.
        """
        alone = limits.concurrency == 1 and (limits.max_model_len is None or longest < limits.max_model_len)
        return (setting.more.get(DEPTH), setting.more.get(CACHED)) if alone else own_state(setting)

    def session(self, settings: Sequence[Setting], limits: Limits) -> SuffixSession:
        """Begin a replay with empty trees."""
        return SuffixSession(settings, limits)
