"""What a trial was of: its model, and an arm's setting in a few words."""

from collections.abc import Sequence
from pathlib import Path

from draftworth.reports.trial.base import Subject
from draftworth.trials.record import ArmRecord, TrialRecord

_MODEL_FLAGS = ("--model", "--model-path", "--served-model-name", "-m", "--model_path")
_NOT_SETTINGS = frozenset({"method", "model", "rejection_sample_method"})
UNKNOWN = "model not known"
"""How the name begins of a model that no record names."""
_SHORT = {
    "num_speculative_tokens": "k",
    "prompt_lookup_min": "min",
    "prompt_lookup_max": "max",
    "draft_tensor_parallel_size": "draft tp",
    "synthetic_acceptance_length": "synthetic length",
}


def model_of(record: TrialRecord) -> str:
    """Return the model a trial was of, as its configuration or its baseline's command names it."""
    service = record.config.get("service")
    named = service.get("model") if isinstance(service, dict) else None
    if named:
        return str(named)
    arm = record.arms[0] if record.arms else None
    found = _in_command(arm.command) if arm is not None else None
    if found is None and isinstance(service, dict):
        command = service.get("command")
        found = _in_command([str(word) for word in command]) if isinstance(command, list | tuple) else None
    if found is not None:
        return found
    url = arm.declared.get("url") if arm is not None else None
    return f"{UNKNOWN} ({url or record.id})"


def _in_command(command: Sequence[str]) -> str | None:
    for flag in _MODEL_FLAGS:
        for at, word in enumerate(command):
            if word == flag and at + 1 < len(command):
                return _name(command[at + 1])
            if word.startswith(f"{flag}="):
                return _name(word.partition("=")[2])
    served = next((at for at, word in enumerate(command) if word == "serve"), len(command))
    named = command[served + 1 : served + 2]
    return _name(named[0]) if named and not named[0].startswith("-") else None


def _name(path: str) -> str:
    """Return a model's name; of a path, its last part, so that the same model on two machines is one."""
    return Path(path).name if path.startswith(("/", ".", "~")) else path


def setting_of(arm: ArmRecord | None, subject: Subject) -> str:
    """Return what an arm was started with, in a few words."""
    name = arm.name if arm else ""
    config, env = subject.speculation(name)
    words = []
    if config:
        method = str(config.get("method") or "draft model")
        head = f" {_name(str(config['model']))}" if config.get("model") else ""
        figures = [
            f"{_SHORT.get(key, key.replace('_', ' '))} {value}"
            for key, value in config.items()
            if key not in _NOT_SETTINGS and value is not None
        ]
        words.append(f"{method}{head}{': ' if figures else ''}{', '.join(figures)}")
    declared = arm.declared if arm else {}
    args = declared.get("args") or ()
    words += [" ".join(map(str, args))] if args else []
    words += [f"{key}={value}" for key, value in (env or {}).items()]
    return "; ".join(words)
