"""What a profile says: the milliseconds of its decode steps by class, and how two of them differ.

The span is the time of the decode steps that could be told whole, one after the other; see `steps.py`. Its milliseconds
are shared out once: an instant at which several kernels ran on different streams is split evenly between them, so that
the classes, the idle time and the host's time add up to the span.
"""

from typing import Literal

from draftworth.models import Frozen

SCHEMA_VERSION = 1

Class = Literal[
    "all-reduce",
    "other collectives",
    "experts",
    "attention",
    "matrix work",
    "sampling",
    "copies",
    "other",
    "host",
    "not recognised",
]
CLASSES: tuple[Class, ...] = (
    "all-reduce",
    "other collectives",
    "experts",
    "attention",
    "matrix work",
    "sampling",
    "copies",
    "other",
    "not recognised",
)
"""In the order they are told. `host` is a class of operations of a CPU only, and is told as `host_ms`."""
MEANING: dict[Class, str] = {
    "all-reduce": "sums over the ranks of a tensor-parallel group, waiting for the slowest rank included",
    "other collectives": "all-gather, reduce-scatter, all-to-all, send and receive",
    "experts": "MoE: routing, permutation, grouped matrix products",
    "attention": "attention, MLA, state-space layers, writing to the KV cache",
    "matrix work": "every other matrix product, quantised or not",
    "sampling": "logits to tokens, verification of drafts, drafting without a model",
    "copies": "memory copied or set",
    "other": "norms, activations, rotary embedding, elementwise, quantisation of activations",
    "host": "Python and dispatch of operations",
    "not recognised": "no pattern matches the name",
}


class Kernel(Frozen):
    """Kernels, or operations of a CPU, of one name."""

    name: str
    ms: float
    """Of the span."""
    count: int


class ClassTime(Frozen):
    """What one class took."""

    name: Class
    ms: float
    """Of the span; instants of overlap are split evenly between what ran."""
    share: float
    """Of the span."""
    count: int
    """Kernels, or operations of a CPU, that began within the span."""
    busy_ms: float
    """Sum of durations: above `ms` where other kernels ran at the same time."""
    top: tuple[Kernel, ...] = ()
    """The names that took longest."""


class Spread(Frozen):
    """A 95 % interval in milliseconds, over the steps of one run: what another start would give is not in it."""

    low_ms: float
    high_ms: float


class StepTime(Frozen):
    """What one line took in a step, on average."""

    name: str
    """A class, `idle`, `host`, `idle and host` or `total`."""
    ms: float
    interval: Spread | None = None
    """None where there are too few steps for one."""


class Profile(Frozen):
    """One rank's decode time by class; the slowest rank's where several were read."""

    schema_version: int = SCHEMA_VERSION
    source: str
    """The file."""
    engine: str = ""
    """`vllm 0.32.0`, where the trace tells it."""
    rank: int | None = None
    device: str = ""
    """`cpu`, `gpu 0: NVIDIA H200`."""
    span_ms: float
    """Decode time that was looked at: `classes`, `idle_ms` and `host_ms` add up to it."""
    steps: int | None = None
    """Decode steps in the span; None where steps could not be told and none were stated."""
    tokens: float | None = None
    """Output tokens of these steps, over all requests; None where not known."""
    carried: int | None = None
    """Tokens these steps carried: those verified, drafts included; None where not known."""
    request_steps: int | None = None
    """Sum over these steps of the requests in each; None where not known."""
    per_step: tuple[StepTime, ...] = ()
    """Milliseconds a step with intervals; empty where the trace does not tell its steps."""
    told_by: str
    """How decode steps were told."""
    whole_ms: float = 0.0
    """From the first to the last event of the file, prefill and pauses included."""
    classes: tuple[ClassTime, ...] = ()
    """In the order of CLASSES, those that occur."""
    idle_ms: float = 0.0
    """Nothing ran and the host was not seen busy."""
    host_ms: float | None = None
    """Nothing ran while the host ran Python or launched; None where the trace has no operations of the CPU."""
    scopes: tuple[Kernel, ...] = ()
    """Ranges that the engine named on the host, such as `gpu_model_runner: draft`, whatever ran within them: a view of
    the same time, no part of the sum."""
    unknown: tuple[Kernel, ...] = ()
    """Names that no pattern matches, the longest first."""
    complete: bool = True
    """Whether the file was read to its end."""
    warnings: tuple[str, ...] = ()
    """What has to be known before any figure: which files were left out, whether they are one run's, too few steps."""
    notes: tuple[str, ...] = ()
    ranks: "tuple[Profile, ...]" = ()
    """Every rank, by number, where several were read."""

    def of(self, name: Class) -> float:
        """Return the milliseconds of a class in the span; 0 where it does not occur."""
        return next((one.ms for one in self.classes if one.name == name), 0.0)


class Difference(Frozen):
    """One line of a comparison, in milliseconds; `per` says of what."""

    name: str
    """A class, `idle`, `host` or `total`."""
    base_ms: float | None
    variant_ms: float | None
    """None where it is not known of this profile."""
    interval: Spread | None = None
    """Of the difference; None where one of the two has too few steps for it."""

    @property
    def difference_ms(self) -> float | None:
        """Variant less base; None where one is not known."""
        return None if self.base_ms is None or self.variant_ms is None else self.variant_ms - self.base_ms


class Compared(Frozen):
    """Two profiles, class by class."""

    schema_version: int = SCHEMA_VERSION
    base: Profile
    variant: Profile
    per_step: tuple[Difference, ...] = ()
    """Milliseconds a decode step; empty where a number of steps is not known."""
    per_token: tuple[Difference, ...] = ()
    """Milliseconds an output token; empty where a number of tokens is not known."""
    shares: tuple[tuple[str, float, float], ...] = ()
    """Class, its share of the base's span, of the variant's."""
    notes: tuple[str, ...] = ()
