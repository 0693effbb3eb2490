"""Which prompts a running server has answered in earlier trials, for drafters that learn from answers."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from draftworth.bench.address import clean_url
from draftworth.errors import UsageError


def answered_before(urls: Mapping[str, str], folders: Sequence[Path]) -> dict[str, frozenset[tuple[int, ...]]]:
    """Return, by arm, the prompts that earlier trials sent to its URL.

    Whether a server was restarted since is not known, and not taken for granted. A trial that cannot be read is passed
    over: it says nothing of this one.

    Args:
        urls: where each arm in question answers.
        folders: earlier trials', in any order.
    """
    import pyarrow as pa  # noqa: PLC0415 - lazy
    import pyarrow.parquet as pq  # noqa: PLC0415 - lazy

    found: dict[str, set[tuple[int, ...]]] = {name: set() for name in urls}
    for folder in folders if urls else ():
        try:
            told = json.loads((folder / "trial.json").read_text(encoding="utf-8"))
            theirs = _urls(told)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, UsageError):
            continue
        same = {name: [one for one, at in theirs.items() if at == clean_url(url)] for name, url in urls.items()}
        if not any(same.values()):
            continue
        try:
            rows = pq.read_table(folder / "requests.parquet", columns=["arm", "prompt_token_ids"])
        except (OSError, pa.ArrowException):
            continue
        sent = list(zip(rows.column("arm").to_pylist(), rows.column("prompt_token_ids").to_pylist(), strict=True))
        for name, arms in same.items():
            found[name].update(tuple(ids) for arm, ids in sent if arm in arms and ids)
    return {name: frozenset(prompts) for name, prompts in found.items() if prompts}


def _urls(told: Mapping[str, Any]) -> dict[str, str]:
    config = told["config"]
    if config["service"].get("type") != "endpoints":
        return {}
    return {
        "baseline": clean_url(config["service"]["baseline"]),
        **{one["name"]: clean_url(one["url"]) for one in config["arms"]},
    }
