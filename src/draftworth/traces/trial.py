"""Reads what a trial or a benchmark recorded as a trace: the answers of one arm, with the ids its server gave.

The rows are those of `bench.rows`; a server that told no ids leaves none, and its rows are left out and counted.
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from draftworth.errors import UsageError
from draftworth.traces.parquet import IDS, ParquetTrace, Source, opened

if TYPE_CHECKING:
    import pyarrow as pa

REQUESTS = "requests.parquet"
BASELINE = "baseline"
_OTHER_ARM = None
_FAILED = "the request failed"
_NO_IDS = "the server told no token ids of the {}"
_COLUMNS = {
    "prompt_token_ids": "prompt_token_ids",
    "output_token_ids": "token_ids",
    "thinking_tokens": "reasoning_tokens",
    "category": "category",
}
_MODEL_FLAGS = (
    "--served-model-name",
    "--served_model_name",
    "--alias",
    "--model",
    "--model-path",
    "--model_path",
    "-m",
    "--hf-repo",
    "-hf",
)
"""Of vLLM, SGLang and llama.cpp; the name that clients use before the place of the weights."""
_SERVES = re.compile(r"(?:^|/)(?:serve|trtllm-serve)$")
_MARKS = frozenset({"arm", "block", "repeat", "prompt_id", "token_ids", "ok"})
_MORE = ("arm", "ok", "prompt_id", "block", "repeat", "point", "token_source")


def is_trial(columns: "frozenset[str]") -> bool:
    """Whether a table with these columns is a requests.parquet."""
    return columns >= _MARKS


class TrialTrace(ParquetTrace):
    """The answers of one arm as a trace.

    Ids of requests are `<prompt>@<block>.<repeat>`: a prompt is measured several times, and every answer counts.

    Args:
        path: what a person named.
        file: the requests.parquet.
        arm: which arm's; None takes the baseline's, or those of the only arm there is.
        model: the chosen model; None for the one there is.
        vocabulary: ids at or above this make a row unusable.

    Raises:
        UsageError: the file cannot be read, or there is no such arm or model; lists those there are.
    """

    def __init__(
        self,
        path: Path,
        file: Path,
        *,
        arm: str | None = None,
        model: str | None = None,
        vocabulary: int | None = None,
    ) -> None:
        self.arm = _arm(path, file, arm)
        record = _record(file.parent)
        served = _model(record, self.arm)
        if None not in {model, served} and model != served:
            raise UsageError(f"{path} has no requests of the model {model!r}; there is {served}: leave --model out")
        super().__init__(
            path,
            [file],
            Source(_COLUMNS, model=served, temperature=_temperature(record)),
            vocabulary=vocabulary,
        )
        # The file has the rows of every arm.
        self.requests = None

    def more_columns(self) -> tuple[str, ...]:
        """Return what tells whose a row is and whether it can be used."""
        return _MORE

    def leave_out(self, table: "pa.RecordBatch") -> list[tuple[NDArray[np.bool_], str | None]]:
        """Return masks: other arms, requests that failed, answers without ids."""
        other = np.array([one != self.arm for one in table.column("arm").to_pylist()], np.bool_)
        failed = np.array([one is not True for one in table.column("ok").to_pylist()], np.bool_)
        found: list[tuple[NDArray[np.bool_], str | None]] = [(other, _OTHER_ARM), (failed, _FAILED)]
        for name, what in zip(IDS, ("prompt", "output"), strict=True):
            lengths = table.column(_COLUMNS[name]).value_lengths().fill_null(0)
            found.append((lengths.to_numpy(zero_copy_only=False) == 0, _NO_IDS.format(what)))
        return found

    def names(self, table: "pa.RecordBatch", first: int) -> list[str]:
        """Return every row's request id."""
        del first
        several = "point" in table.schema.names
        columns = [table.column(name).to_pylist() for name in ("prompt_id", "block", "repeat")]
        points = table.column("point").to_pylist() if several else [""] * len(table)
        return [
            f"{prompt}@{block}.{repeat}{f'/{point}' if point else ''}"
            for prompt, block, repeat, point in zip(*columns, points, strict=True)
        ]

    def exactness(self, table: "pa.RecordBatch") -> NDArray[np.bool_]:
        """Return whether each row's ids are whole: not where the tokens had to be counted by chunks."""
        return np.array([one != "chunks" for one in table.column("token_source").to_pylist()], np.bool_)


def _arm(path: Path, file: Path, arm: str | None) -> str:
    with opened(file) as table:
        arms: dict[str, None] = {}
        for batch in table.iter_batches(columns=["arm"]):
            arms.update(dict.fromkeys(batch.column("arm").unique().to_pylist()))
    if not arms:
        raise UsageError(f"{path} has no requests")
    if arm is None:
        arm = next(iter(arms)) if len(arms) == 1 else BASELINE
    if arm not in arms:
        raise UsageError(f"{path} has no arm {arm!r}; there are {', '.join(arms)}: choose one with --arm")
    return arm


def _record(folder: Path) -> dict[str, Any]:
    """Return what is said beside the rows, {} where nothing can be read: it adds no more than names."""
    for name in ("trial.json", "bench.json"):
        try:
            found = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(found, dict):
            return found
    return {}


def _model(record: dict[str, Any], arm: str) -> str | None:
    """Return the served model, by the name that clients use where that is told.

    A benchmark names it; a trial does where its file says how the model is called, else in what its servers were
    started with.
    """
    found = record.get("model") or _inner(record, "config", "service").get("model")
    if isinstance(found, str) and found:
        return found
    arms = [one for one in _list(record.get("arms")) if isinstance(one, dict)]
    arms.sort(key=lambda one: one.get("name") != arm)  # its own before the others'
    commands = [_list(one.get("command")) for one in (*arms, _inner(record, "config", "service"))]
    return next((name for command in commands if (name := _in_command(list(map(str, command))))), None)


def _in_command(command: list[str]) -> str:
    """Return the model that a server was started for; empty where its command does not tell."""
    for flag in _MODEL_FLAGS:
        for at, word in enumerate(command):
            module = flag == "-m" and "python" in command[max(at - 1, 0)]  # `python -m` is no model
            if word == flag and at + 1 < len(command) and not module:
                return command[at + 1]
            if word.startswith(f"{flag}="):
                return word.partition("=")[2]
    served = max((at for at, word in enumerate(command) if _SERVES.search(word)), default=len(command))
    named = command[served + 1 : served + 2]
    return named[0] if named and not named[0].startswith("-") else ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _temperature(record: dict[str, Any]) -> float:
    for workload in (_inner(record, "config", "workload"), _inner(record, "workload")):
        found = workload.get("temperature")
        if isinstance(found, int | float) and not isinstance(found, bool):
            return float(found)
    return float("nan")


def _inner(record: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        found = record.get(name)
        record = found if isinstance(found, dict) else {}
    return record
