"""`draftworth.toml`: everything a person says about a trial, each field described once, here.

What every kind of service shares is in `CommonConfig`; a trial on a service that Draftworth starts and stops is a
`TrialConfig`, one between servers that run already an `endpoints.config.EndpointsTrial`.
"""

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from draftworth.bench.config import Count, WorkloadConfig
from draftworth.models import Strict, Words
from draftworth.profiles.vllm import ENV
from draftworth.trials.config_search import SearchConfig, expanded
from draftworth.trials.config_service import (
    FROM_THE_UNIT,
    AccessConfig,
    EngineName,
    ServiceConfig,
    SystemdConfig,
    key_variable,
    plain_url,
)
from draftworth.trials.config_verdict import VerdictConfig
from draftworth.trials.diagnostics import PROFILE, SYNC, SYNC_ARGS, candidates, expand, is_diagnostic
from draftworth.trials.profiling import profiler_flags

__all__ = [
    "BASELINE",
    "FROM_THE_UNIT",
    "AccessConfig",
    "ArmConfig",
    "ArmName",
    "CommonConfig",
    "EngineName",
    "LimitsConfig",
    "ServiceConfig",
    "SystemdConfig",
    "SystemdTrial",
    "TrialConfig",
    "WorkloadConfig",
    "check_names",
    "json_only",
    "key_variable",
    "plain_url",
]

BASELINE = "baseline"
ArmName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


def _not_json(value: Any) -> str | None:
    """Return a value that JSON cannot hold, as text, or None."""
    if isinstance(value, dict):
        return next((wrong for inner in value.values() if (wrong := _not_json(inner))), None)
    if isinstance(value, list):
        return next((wrong for inner in value if (wrong := _not_json(inner))), None)
    fits = value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))
    return None if fits else str(value)


class ArmConfig(Strict):
    """One way to run the service. The arm `baseline` is the service's own command and is always measured."""

    name: ArmName
    """The arm's name: letters, digits, dot, dash, underscore; at most 64."""
    speculative_config: dict[str, Any] | None = None
    """The engine's own speculative configuration, passed on as it is. An arm without it, args and env is the
    baseline against itself."""
    args: Words = ()
    """Further arguments for the engine in this arm only; a declared difference."""
    env: dict[str, str] = {}
    """Further environment variables in this arm only; a declared difference."""
    check: bool = True
    """Whether what this release of the engine is known to refuse (`draftworth doctor`) and a head or draft model that
    cannot be served (`draftworth head check`) are refused before anything is stopped. false leaves it to the engine."""

    @field_validator("speculative_config")
    @classmethod
    def _is_json(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        return json_only(value)


class LimitsConfig(Strict):
    """Bounds that end a trial; the restore always wins over measuring."""

    downtime_s: Annotated[float, Field(gt=0)] = 7200.0
    """Most seconds the original service may be away, or, where none was running, the trial may take. At expiry the
    trial ends and the original is started. Size it for the starts of each arm plus the requests."""
    start_timeout_s: Annotated[float, Field(gt=0)] = 3600.0
    """Most seconds a server may take until it has generated a token."""
    stop_timeout_s: Annotated[float, Field(gt=0)] = 30.0
    """Seconds a server has to end after SIGTERM, before SIGKILL. A systemd unit has its own TimeoutStopSec."""
    token_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    """Seconds without any event of an answer after which the request has failed."""
    drain_s: Annotated[float, Field(ge=0)] = 30.0
    """systemd: most seconds to wait for requests of others to be answered before the original is stopped."""
    free_timeout_s: Annotated[float, Field(gt=0)] = 180.0
    """systemd: most seconds until a stopped server's GPU memory is free again; then the original is started."""
    silent_s: Annotated[float, Field(gt=0)] = 900.0
    """systemd: a loading server without any sign of life for so long (no log line, no processor time, no input or
    output, no change of GPU memory) is hung, and its start has failed."""
    hold_s: Annotated[float, Field(ge=0)] = 0.0
    """systemd: seconds the last variant stays up after it was measured, for a person to try it; `--hold` sets it. It
    adds to `downtime_s`."""
    requests: Count = 10000
    """Most measured requests in the whole trial; a plan with more is refused."""
    failed_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """An arm with a larger share of failed requests cannot be measured: the verdict is `error`."""


class CommonConfig(Strict):
    """What every trial's file has, whatever runs the servers."""

    workload: WorkloadConfig = WorkloadConfig()
    """The requests."""
    limits: LimitsConfig = LimitsConfig()
    """The bounds."""
    verdict: VerdictConfig = VerdictConfig()
    """The judgement."""

    @model_validator(mode="after")
    def _throughput_is_the_servers(self) -> "CommonConfig":
        work = self.workload
        load = "rate" if work.rate is not None else "replay_speed" if work.replay_speed is not None else None
        if load and self.verdict.metric == "throughput":
            raise ValueError(
                f'verdict.metric = "throughput" needs workload.concurrency: with workload.{load} the arrivals set the '
                "throughput; choose tpot, ttft or goodput"
            )
        return self


def json_only(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a speculative configuration.

    Raises:
        ValueError: something in it has no form in JSON.
    """
    wrong = _not_json(value)
    if wrong:
        raise ValueError(f"{wrong} has no form in JSON, in which the engine takes its configuration")
    return value


def check_names(names: list[str]) -> None:
    """Raise ValueError where arms share a name, or there is none besides the baseline."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two arms are named {twice[0]!r}")
    if set(names) <= {BASELINE}:
        raise ValueError("there is no arm besides the baseline; add one with a speculative_config")


class TrialConfig(CommonConfig):
    """A trial: one service, its arms, the requests, the bounds."""

    service: ServiceConfig
    """The service the trial is about."""
    arms: Annotated[tuple[ArmConfig, ...], Field(min_length=1, strict=False)]
    """The variants, in the order they are tried; `baseline` may be listed and may then have args and env."""
    search: SearchConfig | None = None
    """A search among the arms and the settings of a grid, by `draftworth trial search`."""

    @model_validator(mode="before")
    @classmethod
    def _grid_becomes_arms(cls, data: Any) -> Any:
        return expanded(data) if isinstance(data, Mapping) and data.get("search") is not None else data

    @field_validator("arms")
    @classmethod
    def _names_differ(cls, arms: tuple[ArmConfig, ...]) -> tuple[ArmConfig, ...]:
        if any(arm.name == BASELINE and arm.speculative_config is not None for arm in arms):
            raise ValueError("the baseline must not have a speculative_config; the name is reserved, choose another")
        check_names([arm.name for arm in arms])
        return arms

    @model_validator(mode="after")
    def _search_fits(self) -> "TrialConfig":
        if self.search is None:
            return self
        if self.verdict.starts > 1:
            raise ValueError(
                "verdict.starts: a search starts each setting once; then run a trial of its best with several starts"
            )
        if self.workload.rate is not None or self.workload.replay_speed is not None:
            raise ValueError("workload: a search needs `concurrency`: its loads are requests at a time")
        if self.verdict.metric not in {"tpot", "throughput"}:
            raise ValueError("verdict.metric: a search looks for the best tpot or throughput")
        if not any(arm.speculative_config or arm.args or arm.env for arm in self.arms if arm.name != BASELINE):
            raise ValueError("search.grid: there is nothing to search among; name settings, or add [[arms]]")
        return self

    @model_validator(mode="after")
    def _diagnostics_fit(self) -> "TrialConfig":
        check_names([arm.name for arm in (*self.arms, *self.diagnostic_arms, *self.profiled_arms)])
        return self

    @property
    def baseline(self) -> ArmConfig:
        """The baseline arm, listed or implied."""
        return next((arm for arm in self.arms if arm.name == BASELINE), ArmConfig(name=BASELINE))

    @property
    def variants(self) -> tuple[ArmConfig, ...]:
        """Every arm but the baseline, in order; those that only measure come last."""
        return (*(arm for arm in self.arms if arm.name != BASELINE), *self.diagnostic_arms)

    @property
    def candidates(self) -> tuple[ArmConfig, ...]:
        """The variants a verdict can be about: those that only measure are none, unless there are no others."""
        return candidates(self.variants, lambda arm: is_diagnostic(arm.speculative_config, arm.env, arm.args))

    @property
    def profiled_arms(self) -> tuple[ArmConfig, ...]:
        """The baseline and the first variant that speculates, to be started under the profiler; empty if not asked for.

        Raises:
            ValueError: the engine has no profiler that Draftworth starts.
        """
        if PROFILE not in self.verdict.diagnostics:
            return ()
        if self.service.engine != "vllm":
            raise ValueError(
                f"diagnostics: Draftworth starts no profiler of {self.service.engine}; see docs/profiles.md"
            )
        first = next((arm for arm in self.arms if arm.speculative_config is not None), None)
        some = [self.baseline, *([first] if first is not None else [])]
        return tuple(
            arm.model_copy(update={"name": name, "args": (*arm.args, *profiler_flags(name)), "env": {**arm.env, **ENV}})
            for arm in some
            for name in [f"{PROFILE}-{arm.name}"]
        )

    @property
    def diagnostic_arms(self) -> tuple[ArmConfig, ...]:
        """The arms of `verdict.diagnostics`."""
        found = expand(self.verdict.diagnostics, self.arms, self.service.engine)
        # With flags and variables of the arm whose mode they measure: eager, or on another runner, it is another mode.
        like = next((arm for arm in self.arms if arm.speculative_config), self.baseline)
        arms = tuple(
            ArmConfig(name=name, speculative_config=config, args=like.args, env=like.env, check=like.check)
            for name, config in found
        )
        if SYNC not in self.verdict.diagnostics:
            return arms
        return (ArmConfig(name=SYNC, args=(*self.baseline.args, *SYNC_ARGS), env=self.baseline.env), *arms)

    def anew(self) -> "TrialConfig":
        """Return the same with a search that goes on with no earlier one."""
        if self.search is None:
            return self
        return self.model_copy(update={"search": self.search.model_copy(update={"resume": False})})

    @property
    def searched(self) -> frozenset[str]:
        """The names of the arms that a search chooses from; none where there is no search."""
        return frozenset(arm.name for arm in self.candidates) if self.search is not None else frozenset()

    @property
    def url(self) -> str:
        """Where the server answers."""
        if self.service.url:
            return self.service.url
        host = self.service.listens_at
        return f"http://{f'[{host}]' if ':' in host else host}:{self.service.port}"


class SystemdTrial(TrialConfig):
    """A trial on a systemd service: one unit, its arms, the requests, the bounds."""

    service: SystemdConfig
    """The service the trial is about."""

    @model_validator(mode="after")
    def _only_flags_differ(self) -> "SystemdTrial":
        if PROFILE in self.verdict.diagnostics:
            raise ValueError(
                "verdict.diagnostics: a unit's profiler writes where the unit may write, which Draftworth does not "
                "know; profile it by hand, see docs/profiles.md"
            )
        for arm in self.arms:
            if arm.env:
                raise ValueError(
                    f"arm {arm.name}: env: an arm of a unit differs by flags alone, so that every other property can "
                    "be compared; say it with args, or put the variable into the unit"
                )
            if "$" in "".join((*arm.args, json.dumps(arm.speculative_config))):
                raise ValueError(f"arm {arm.name}: a `$` in its flags would be expanded by systemd; write it without")
        return self
