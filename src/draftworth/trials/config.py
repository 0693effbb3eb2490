"""`draftworth.toml`: everything a person says about a trial, each field described once, here."""

import math
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from draftworth.models import FilePath, Strict, Words

BASELINE = "baseline"


def _not_json(value: Any) -> str | None:
    """Return a value that JSON cannot hold, as text, or None."""
    if isinstance(value, dict):
        return next((wrong for inner in value.values() if (wrong := _not_json(inner))), None)
    if isinstance(value, list):
        return next((wrong for inner in value if (wrong := _not_json(inner))), None)
    fits = value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))
    return None if fits else str(value)


class ServiceConfig(Strict):
    """The service the trial is about: how it is started, and where it answers."""

    type: Literal["process"] = "process"
    """How the service is run: `process`, a command that Draftworth starts and stops itself."""
    engine: Literal["vllm"] = "vllm"
    """Which engine the command starts."""
    command: Annotated[Words, Field(min_length=1)]
    """The command that serves the baseline, one string an argument, without any speculative flag. Where the engine's
    flags cannot simply be appended (a wrapper script), write the word `{speculative_args}` where they belong."""
    cwd: FilePath | None = None
    """The folder the command runs in; relative to this file. Default: this file's folder."""
    env: dict[str, str] = {}
    """Environment variables added to Draftworth's own for every arm."""
    host: str = "127.0.0.1"
    """The address the server listens on, as this machine reaches it."""
    port: Annotated[int, Field(ge=1, le=65535)]
    """The port the server listens on; must be the one the command says."""
    model: str | None = None
    """The served model's name. Default: the first name the server lists."""


class ArmConfig(Strict):
    """One way to run the service. The arm `baseline` is the service's own command and is always measured."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    """The arm's name: letters, digits, dot, dash, underscore; at most 64."""
    speculative_config: dict[str, Any] | None = None
    """The engine's own speculative configuration, passed on as it is. An arm without it, args and env is the
    baseline against itself."""
    args: Words = ()
    """Further arguments for the engine in this arm only; a declared difference."""
    env: dict[str, str] = {}
    """Further environment variables in this arm only; a declared difference."""

    @field_validator("speculative_config")
    @classmethod
    def _is_json(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        wrong = _not_json(value)
        if wrong:
            raise ValueError(f"{wrong} has no form in JSON, in which the engine takes its configuration")
        return value


class WorkloadConfig(Strict):
    """The requests every arm answers: the same ones, in the same order."""

    source: str = "builtin"
    """`builtin`, or a JSONL file (relative to this file) with `prompt`, `messages` or `turns`, and optionally `id`
    and `category`, on each line."""
    categories: Words | None = None
    """Only these categories; default: all of the source."""
    prompts_per_category: Annotated[int, Field(ge=1)] | None = None
    """At most this many prompts of each category; default: all of the source."""
    repeats: Annotated[int, Field(ge=1, le=100)] = 1
    """How often each prompt is sent in one block."""
    max_tokens: Annotated[int, Field(ge=2)] = 192
    """Most tokens an answer may have."""
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = 0.0
    """Sampling temperature; 0 is greedy."""
    seed: int = 0
    """The sampling seed sent with every request."""
    concurrency: Annotated[int, Field(ge=1, le=4096)] = 1
    """Requests in flight at a time."""
    warmup: Annotated[int, Field(ge=0)] = 2
    """Requests sent to a fresh server before measuring, never counted."""


class LimitsConfig(Strict):
    """Bounds that end a trial; the restore always wins over measuring."""

    downtime_s: Annotated[float, Field(gt=0)] = 7200.0
    """Most seconds the original service may be away, or, where none was running, the trial may take. At expiry the
    trial ends and the original is started. Size it for one start of each arm plus the requests."""
    start_timeout_s: Annotated[float, Field(gt=0)] = 3600.0
    """Most seconds a server may take until it has generated a token."""
    stop_timeout_s: Annotated[float, Field(gt=0)] = 30.0
    """Seconds a server has to end after SIGTERM, before SIGKILL."""
    token_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    """Seconds without any event of an answer after which the request has failed."""
    requests: Annotated[int, Field(ge=1)] = 10000
    """Most measured requests in the whole trial; a plan with more is refused."""
    failed_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """An arm with a larger share of failed requests cannot be measured: the verdict is `error`."""


class VerdictConfig(Strict):
    """How the record is judged."""

    margin: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """*No difference* means the whole interval of the TPOT ratio lies within 1 ± margin."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """Confidence of the intervals."""
    restart_sd_baseline: Annotated[float, Field(ge=0, lt=1)] = 0.005
    """Assumed standard deviation of log TPOT between restarts without speculation, used while an arm was started
    fewer than three times (published spread: 0.5 %)."""
    restart_sd_variant: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """The same with speculation (published spread: 11 % between the fastest and slowest of a handful of restarts)."""
    output_check: bool = True
    """Score the variant's greedy tokens on the baseline server. Switched off, *faster* says nothing about the text."""
    output_check_prompts: Annotated[int, Field(ge=1)] = 48
    """At most this many outputs of each arm are scored."""


class TrialConfig(Strict):
    """A trial: one service, its arms, the requests, the bounds."""

    service: ServiceConfig
    """The service the trial is about."""
    arms: Annotated[tuple[ArmConfig, ...], Field(min_length=1, strict=False)]
    """The variants, in the order they are tried; `baseline` may be listed and may then have args and env."""
    workload: WorkloadConfig = WorkloadConfig()
    """The requests."""
    limits: LimitsConfig = LimitsConfig()
    """The bounds."""
    verdict: VerdictConfig = VerdictConfig()
    """The judgement."""

    @field_validator("arms")
    @classmethod
    def _names_differ(cls, arms: tuple[ArmConfig, ...]) -> tuple[ArmConfig, ...]:
        if any(arm.name == BASELINE and arm.speculative_config is not None for arm in arms):
            raise ValueError("the baseline must not have a speculative_config; the name is reserved, choose another")
        names = [arm.name for arm in arms]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two arms are named {twice[0]!r}")
        if set(names) == {BASELINE}:
            raise ValueError("there is no arm besides the baseline; add one with a speculative_config")
        return arms

    @property
    def baseline(self) -> ArmConfig:
        """The baseline arm, listed or implied."""
        return next((arm for arm in self.arms if arm.name == BASELINE), ArmConfig(name=BASELINE))

    @property
    def variants(self) -> tuple[ArmConfig, ...]:
        """Every arm but the baseline, in order."""
        return tuple(arm for arm in self.arms if arm.name != BASELINE)

    @property
    def url(self) -> str:
        """Where the server answers."""
        host = f"[{self.service.host}]" if ":" in self.service.host else self.service.host
        return f"http://{host}:{self.service.port}"
