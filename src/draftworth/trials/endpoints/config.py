"""The trial's file where `[service] type = "endpoints"`: servers that run already, a baseline and its variants."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from draftworth.models import FilePath, Words
from draftworth.trials.config import (
    BASELINE,
    AccessConfig,
    ArmName,
    CommonConfig,
    EngineName,
    check_names,
    json_only,
    plain_url,
)
from draftworth.trials.diagnostics import PROBE


class EndpointsConfig(AccessConfig):
    """Servers that run already: nothing is started and nothing is stopped."""

    type: Literal["endpoints"]
    """`endpoints`."""
    engine: EngineName | None = None
    """Which engine the servers run, for their metrics: `vllm`, `sglang`, `llamacpp` or `trtllm`. Default: recognised at
    each server."""
    baseline: str
    """The URL of the server that does not speculate, e.g. `http://replica-a:8000`, without `/v1`."""
    model: str | None = None
    """The served model's name. Default: the first name the baseline lists."""
    looks: Annotated[int, Field(ge=1, le=20)] = 5
    """How often the trial looks at the evidence while the prompts are sent, and ends when it is enough; the error rate
    is kept."""
    output_check_tokens: Annotated[int, Field(ge=16)] = 256
    """Most tokens (prompt and answer) of an output that is scored on the baseline. How much of its memory is free
    cannot be seen from here, and log-probabilities of a long prompt take some (about 1 MB a token)."""

    @field_validator("baseline")
    @classmethod
    def _is_url(cls, value: str) -> str:
        return plain_url(value)


class EndpointArm(AccessConfig):
    """One variant: a server that runs already.

    The baseline's `headers` and `ca_file` are used where the arm gives none of its own. Its key (`api_key_env`) and
    `headers_env` are sent to a variant at the same scheme, host and port only; elsewhere the arm has to say.
    """

    name: ArmName
    """The arm's name: letters, digits, dot, dash, underscore; at most 64."""
    url: str
    """Its URL, without `/v1`."""
    model: str | None = None
    """Its served name, where that is not the baseline's."""
    speculative_config: dict[str, Any] | None = None
    """What this server was started with, for the record: it cannot be seen over HTTP. Without it a trial tells nothing
    of the cost of an engine's mode, and its arms cannot be predicted (`draftworth predict --check`)."""
    args: Words = ()
    """Further arguments that this server was started with and the baseline was not, for the record."""
    same_access: bool = False
    """Send the baseline's key and `headers_env` to this server, although it has another scheme, host or port; `false`,
    written out, says that it needs none of them."""
    ca_file: FilePath | None = None
    """A PEM file with the authorities to believe for https, where they are not the baseline's; an absolute path."""

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: str) -> str:
        return plain_url(value)

    @field_validator("ca_file")
    @classmethod
    def _is_absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError("must be an absolute path")
        return value

    @field_validator("speculative_config")
    @classmethod
    def _is_json(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        return json_only(value)


class EndpointsTrial(CommonConfig):
    """A trial between servers that run already."""

    service: EndpointsConfig
    """The servers."""
    arms: Annotated[tuple[EndpointArm, ...], Field(min_length=1, strict=False)]
    """The variants."""

    @field_validator("arms")
    @classmethod
    def _names_differ(cls, arms: tuple[EndpointArm, ...]) -> tuple[EndpointArm, ...]:
        if any(arm.name == BASELINE for arm in arms):
            raise ValueError("the baseline is service.baseline; an arm needs another name")
        check_names([arm.name for arm in arms])
        return arms

    @model_validator(mode="after")
    def _urls_differ(self) -> "EndpointsTrial":
        for arm in self.arms:
            if arm.url == self.service.baseline and arm.model in (None, self.service.model):
                raise ValueError(f"arms: {arm.name}: its url is the baseline's; a trial needs two servers")
        if set(self.verdict.diagnostics) - {PROBE}:
            raise ValueError(
                "verdict.diagnostics: endpoints are not started by Draftworth; start a null draft and one of synthetic "
                "acceptance yourself and add each as an [[arms]] with its speculative_config"
            )
        if self.verdict.starts != 1:
            raise ValueError("verdict.starts: endpoints are not started, so there is one start of each")
        return self

    @property
    def variants(self) -> tuple[EndpointArm, ...]:
        """The variants, in order."""
        return self.arms
