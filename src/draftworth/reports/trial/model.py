"""Which model a trial served, by its record alone."""

from collections.abc import Sequence
from pathlib import PurePath

from draftworth.trials.record import TrialRecord

_FLAGS = ("--model", "--model-path", "--model_path", "-m", "--served-model-name", "--hf-repo", "-hf")


def model_of(record: TrialRecord) -> str:
    """Return the model a trial served: as its baseline's command has it, else its configuration; empty for neither."""
    service = record.config.get("service")
    said = service if isinstance(service, dict) else {}
    planned = said.get("command")
    commands = [record.arms[0].command if record.arms else ()]
    commands += [tuple(str(word) for word in planned)] if isinstance(planned, list | tuple) else []
    found = next((model for command in commands if (model := _in_command(command))), "")
    return found or str(said.get("model") or "")


def _in_command(command: Sequence[str]) -> str:
    for flag in _FLAGS:
        for at, word in enumerate(command):
            # `python -m` is no model.
            module = flag == "-m" and "python" in command[max(at - 1, 0)]
            if word == flag and at + 1 < len(command) and not module:
                return command[at + 1]
            if word.startswith(f"{flag}="):
                return word.partition("=")[2]
    served = next((at for at, word in enumerate(command) if word == "serve"), len(command))
    named = command[served + 1 : served + 2]
    return named[0] if named and not named[0].startswith("-") else ""


def short_name(model: str) -> str:
    """Return a model's name; of a path, its last part, so that the same model on two machines is one."""
    return PurePath(model).name if model.startswith(("/", ".", "~")) else model
