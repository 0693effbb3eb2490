"""`draftworth trial schema`: the trial's file, explained from the models themselves."""

import textwrap
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from draftworth.trials.config import (
    ArmConfig,
    LimitsConfig,
    ServiceConfig,
    TrialConfig,
    VerdictConfig,
    WorkloadConfig,
)

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
}
_WRITTEN = {("service", "command"), ("service", "port"), ("arms", "name"), ("arms", "speculative_config")}


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a trial's file."""
    return TrialConfig.model_json_schema()


def toml_schema() -> str:
    """Return a trial's file with every field explained; it is itself a valid trial."""
    tables: list[tuple[str, str, type[BaseModel]]] = [
        ("[service]", "service", ServiceConfig),
        ("[[arms]]", "arms", ArmConfig),
        ("[workload]", "workload", WorkloadConfig),
        ("[limits]", "limits", LimitsConfig),
        ("[verdict]", "verdict", VerdictConfig),
    ]
    lines = ["# A trial of Draftworth. Fields behind `#` are optional and show their default or an example.", ""]
    for header, name, model in tables:
        lines += [f"# {line}" for line in textwrap.wrap(_flat(model.__doc__ or ""), 110)]
        lines.append(header)
        for field in _fields(name, model):
            lines += field
        lines.append("")
    return "\n".join(lines)


def _fields(table: str, model: type[BaseModel]) -> Iterator[list[str]]:
    for name, info in model.model_fields.items():
        about = [f"# {line}" for line in textwrap.wrap(_flat(info.description or ""), 110)]
        value = _EXAMPLES.get((table, name)) or _toml(info.default)
        hidden = "" if (table, name) in _WRITTEN else "# "
        yield [*about, f"{hidden}{name} = {value}"]


def _toml(value: Any) -> str:
    if value is PydanticUndefined or value is None:
        return '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    return "{}" if isinstance(value, dict) else f"{value}"


def _flat(text: str) -> str:
    return " ".join(text.split())
