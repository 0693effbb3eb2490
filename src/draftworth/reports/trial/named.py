"""What a trial was of: its model, and an arm's setting in a few words."""

from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.model import model_of, short_name
from draftworth.trials.record import ArmRecord, TrialRecord

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


def told_model(record: TrialRecord) -> str:
    """Return the model's name for a person; where no record names it, that, and where it answered."""
    found = short_name(model_of(record))
    arm = record.arms[0] if record.arms else None
    return found or f"{UNKNOWN} ({(arm.declared.get('url') if arm is not None else None) or record.id})"


def setting_of(arm: ArmRecord | None, subject: Subject) -> str:
    """Return what an arm was started with, in a few words."""
    name = arm.name if arm else ""
    config, env = subject.speculation(name)
    words = []
    if config:
        method = str(config.get("method") or "draft model")
        head = f" {short_name(str(config['model']))}" if config.get("model") else ""
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
