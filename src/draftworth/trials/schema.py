"""`draftworth trial schema`: the trial's file, explained from the models themselves."""

import textwrap
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from draftworth.trials.config import (
    FROM_THE_UNIT,
    AccessConfig,
    ArmConfig,
    LimitsConfig,
    ServiceConfig,
    SystemdConfig,
    SystemdTrial,
    TrialConfig,
    WorkloadConfig,
)
from draftworth.trials.config_search import SearchConfig
from draftworth.trials.config_verdict import VerdictConfig
from draftworth.trials.endpoints.config import EndpointArm, EndpointsConfig, EndpointsTrial

_EXAMPLES: dict[tuple[str, str], str] = {
    ("service", "command"): '["vllm", "serve", "/models/my-model", "--port", "8000"]',
    ("service", "port"): "8000",
    ("service", "model"): '"my-model"',
    ("service", "env"): '{ HF_HUB_OFFLINE = "1" }',
    ("service", "cwd"): '"."',
    ("arms", "name"): '"ngram-5"',
    ("arms", "speculative_config"): (
        '{ method = "ngram", num_speculative_tokens = 5, prompt_lookup_min = 2, prompt_lookup_max = 4 }'
    ),
    ("arms", "args"): "[]",
    ("arms", "env"): "{}",
    ("workload", "categories"): '["coding", "editing"]',
    ("workload", "prompts_per_category"): "6",
    ("workload", "limit"): "100",
    ("workload", "order_seed"): "1",
    ("workload", "format"): '"sharegpt"',
    ("workload", "context_tokens"): "[1000, 8000]",
    ("workload", "rate"): "[2.0, 8.0]",
    ("workload", "replay_speed"): "1.0",
    ("verdict", "restart_sd_baseline"): "0.006",
    ("verdict", "restart_sd_variant"): "0.08",
    ("verdict", "slo"): "{ ttft_ms = 500, tpot_ms = 40 }",
    ("service", "api_key_env"): '"MY_SERVER_KEY"',
    ("service", "headers"): '{ X-Team = "search" }',
    ("service", "headers_env"): '{ X-Gateway-Key = "MY_GATEWAY_KEY" }',
    ("service", "ca_file"): '"company-ca.pem"',
    (
        "search",
        "grid",
    ): '[{ method = "ngram", k = [2, 3, 5], prompt_lookup_max = 4 }, { method = "suffix", k = 8 }]',
    ("search", "minutes"): "60",
    ("service", "url"): '"https://127.0.0.1:8000/base"',
    ("service", "engine"): '"vllm"',
    ("service", "unit"): '"vllm.service"',
    ("service", "baseline"): '"http://replica-a:8000"',
    ("arms", "url"): '"http://replica-b:8000"',
    ("arms", "model"): '"my-model"',
    ("arms", "api_key_env"): '"OTHER_KEY"',
    ("arms", "headers"): '{ X-Team = "search" }',
    ("arms", "headers_env"): '{ X-Gateway-Key = "OTHER_GATEWAY_KEY" }',
    ("arms", "ca_file"): '"/etc/ssl/company-ca.pem"',
}
_WRITTEN = {
    *(("service", "command"), ("service", "port"), ("arms", "name"), ("arms", "speculative_config")),
    *(("service", "baseline"), ("service", "unit"), ("arms", "url")),
}


Kind = Literal["process", "systemd", "endpoints"]
_TRIALS: dict[str, type[BaseModel]] = {"process": TrialConfig, "systemd": SystemdTrial, "endpoints": EndpointsTrial}
_SERVICES: dict[str, type[BaseModel]] = {
    "process": ServiceConfig,
    "systemd": SystemdConfig,
    "endpoints": EndpointsConfig,
}

_TYPED: dict[type[BaseModel], str] = {EndpointsConfig: '"endpoints"', SystemdConfig: '"systemd"'}


def json_schema(kind: Kind = "process") -> dict[str, Any]:
    """Return the JSON schema of a trial's file."""
    found = _TRIALS[kind].model_json_schema()
    if kind == "systemd":
        for name in FROM_THE_UNIT:
            found["$defs"]["SystemdConfig"]["properties"].pop(name, None)
    return found


def toml_schema(kind: Kind = "process") -> str:
    """Return a trial's file with every field explained; it is itself a valid trial."""
    tables: list[tuple[str, str, type[BaseModel]]] = [
        ("[service]", "service", _SERVICES[kind]),
        ("[[arms]]", "arms", EndpointArm if kind == "endpoints" else ArmConfig),
        ("[workload]", "workload", WorkloadConfig),
        ("[limits]", "limits", LimitsConfig),
        ("[verdict]", "verdict", VerdictConfig),
        *([] if kind == "endpoints" else [("# [search]", "search", SearchConfig)]),
    ]
    lines = ["# A trial of Draftworth. Fields behind `#` are optional and show their default or an example.", ""]
    for header, name, model in tables:
        lines += [f"# {line}" for line in textwrap.wrap(_flat(model.__doc__ or ""), 110)]
        lines.append(header)
        for field in _fields(name, model, without=FROM_THE_UNIT if kind == "systemd" else frozenset()):
            lines += field
        lines.append("")
    return "\n".join(lines)


def _fields(table: str, model: type[BaseModel], *, without: frozenset[str]) -> Iterator[list[str]]:
    # What every kind of service shares comes last.
    own = vars(model).get("__annotations__", {}) if model is SystemdConfig else ()
    for name, info in sorted(
        model.model_fields.items(), key=lambda item: (item[0] in AccessConfig.model_fields, item[0] not in own)
    ):
        if name in without:
            continue
        about = [f"# {line}" for line in textwrap.wrap(_flat(info.description or ""), 110)]
        value = _EXAMPLES.get((table, name)) or _toml(info.default)
        written = (table, name) in _WRITTEN and not (model is SystemdConfig and name == "port")
        if name == "type" and model in _TYPED:
            written, value = True, _TYPED[model]
        if name == "host" and model is SystemdConfig:
            value = '"gpu-box"'
        hidden = "" if written else "# "
        yield [*about, f"{hidden}{name} = {value}"]


def _toml(value: Any) -> str:
    if value is PydanticUndefined or value is None:
        return '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple | list) and len(value) == 1 and isinstance(value[0], int | float):
        return _toml(value[0])  # a sweep of one
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    return "{}" if isinstance(value, dict) else f"{value}"


def _flat(text: str) -> str:
    return " ".join(text.split())
