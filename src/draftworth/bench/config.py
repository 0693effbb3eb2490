"""What a person says about the requests of a measurement: shared by trials and `draftworth bench`."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from draftworth.models import Strict, Words


def _as_list(value: Any) -> Any:
    """Return one number as a list of one."""
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else value


Count = Annotated[int, Field(ge=1)]
Counts = Annotated[tuple[Count, ...], BeforeValidator(_as_list), Field(strict=False, min_length=1)]
"""One whole number, or a list of them: a sweep."""
Rates = Annotated[
    tuple[Annotated[float, Field(gt=0, le=1e6)], ...], BeforeValidator(_as_list), Field(strict=False, min_length=1)
]


class WorkloadConfig(Strict):
    """The requests every arm answers: the same ones, in the same order.

    `concurrency`, `rate`, `context_tokens` and `max_tokens` may be lists: every combination is measured, in each start
    of each arm.
    """

    source: str = "builtin"
    """`builtin`, or a file with prompts, conversations or a recorded trace, relative to this file; docs/workloads.md
    lists the layouts."""
    format: str | None = None
    """The file's layout, where it is not to be recognised by its content."""
    categories: Words | None = None
    """Only these categories; default: all of the source."""
    prompts_per_category: Count | None = None
    """At most this many prompts of each category; default: all of the source."""
    limit: Count | None = None
    """At most this many prompts in all."""
    order_seed: int | None = None
    """Shuffle the prompts by this seed before they are chosen; default: the file's order, categories in turn."""
    first_turn_only: bool = False
    """Send only the first turn of conversations with several."""
    repeats: Annotated[int, Field(ge=1, le=100)] = 1
    """How often each prompt is sent in one block."""
    max_tokens: Annotated[
        tuple[Annotated[int, Field(ge=2)], ...], BeforeValidator(_as_list), Field(strict=False, min_length=1)
    ] = (192,)
    """Most tokens an answer may have; a list sweeps over them."""
    context_tokens: Counts | None = None
    """Put natural text in front of each prompt until it has about this many tokens; a list sweeps over them."""
    recorded_lengths: bool = False
    """Of a recorded trace: let no answer be longer than the recorded one."""
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = 0.0
    """Sampling temperature; 0 is greedy."""
    seed: int = 0
    """What each request's sampling seed is made of, with its prompt; and the seed of an open loop's arrival times."""
    ignore_eos: bool = False
    """Generate on past the end token. Changes what is measured, and is remarked on."""
    concurrency: Annotated[
        tuple[Annotated[int, Field(ge=1, le=4096)], ...], BeforeValidator(_as_list), Field(strict=False, min_length=1)
    ] = (1,)
    """Closed loop: requests in flight at a time; a list sweeps over them."""
    rate: Rates | None = None
    """Open loop instead: requests a second, as a Poisson process; a list sweeps over them."""
    replay_speed: Annotated[float, Field(gt=0, le=1000)] | None = None
    """Send the requests at their recorded times instead, this many times as fast (1 = as recorded)."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """How often a request that was refused with 429 or 5xx is sent again. Such a request enters no time."""
    warmup: Annotated[int, Field(ge=0)] = 2
    """Requests sent to a fresh server before measuring, never counted."""

    @model_validator(mode="after")
    def _one_load(self) -> "WorkloadConfig":
        # By value: a configuration that was written out in full must load again.
        asked = {
            "concurrency": self.concurrency != (1,),
            "rate": self.rate is not None,
            "replay_speed": self.replay_speed is not None,
        }
        given = [name for name, some in asked.items() if some]
        if len(given) > 1:
            raise ValueError(
                f"{' and '.join(given)} exclude each other: choose a closed loop, an open loop or a replay"
            )
        return self


class SloConfig(Strict):
    """What a request must meet to count for goodput; at least one limit where the verdict is on goodput."""

    ttft_ms: Annotated[float, Field(gt=0)] | None = None
    """Most milliseconds to the first token."""
    tpot_ms: Annotated[float, Field(gt=0)] | None = None
    """Most milliseconds a token after it."""
    e2e_ms: Annotated[float, Field(gt=0)] | None = None
    """Most milliseconds to the end of the answer."""

    @property
    def stated(self) -> bool:
        """Whether there is any limit."""
        return any(value is not None for value in (self.ttft_ms, self.tpot_ms, self.e2e_ms))
