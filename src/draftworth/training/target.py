"""What a target's own files say: its configuration and the size of its vocabulary."""

import json
from pathlib import Path

from draftworth.costs.paper.fields import Fields
from draftworth.errors import UsageError


def config_fields(target: Path) -> Fields:
    """Return the fields of a target's config.json; of a model of several kinds of input, the language model's part.

    Raises:
        UsageError: there is none, or it is no JSON object.
    """
    path = target / "config.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; `target` is the folder of the model that is served") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}: no JSON object")
    return Fields.of(found, str(path))


def vocabulary_of(target: Path) -> int:
    """Return how many ids a target's output layer has; its tokenizer may have fewer.

    Raises:
        UsageError: its config.json does not say.
    """
    return config_fields(target).need("vocab_size")
