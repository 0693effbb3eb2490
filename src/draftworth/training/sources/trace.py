"""Recorded traffic: the ids that a server saw and generated; no template is needed."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from draftworth.errors import UsageError
from draftworth.traces.columns import BadRow
from draftworth.traces.imports.base import sample
from draftworth.traces.store import is_trace, open_trace
from draftworth.traces.tokenizing import tokenizer_hash
from draftworth.training.recipe import SourceConfig
from draftworth.training.sources.base import Conversation, Found, Ids

NO_PROMPT = "the prompt is empty"


class Trace:
    """Whatever `draftworth.traces.store.open_trace` reads, logs that `trace import` reads included."""

    name = "trace"

    def fits(self, path: Path) -> bool:
        """Return whether it is a trace, or a record of requests and responses."""
        if path.is_dir():
            try:
                return is_trace(path)
            except UsageError:  # a folder of something else
                return False
        if is_trace(path):
            return True
        first = sample(path).first
        return bool(first.keys() & {"prompt_token_ids", "output_token_ids", "request", "request_body", "choices"})

    def files(self, source: SourceConfig) -> Sequence[Path]:
        """Return the files that a trace is read from."""
        if source.path.is_file():
            return (source.path,)
        found = sorted(one for one in source.path.rglob("*.parquet") if one.is_file())
        if not found:
            raise UsageError(f"{source.path}: no trace in this folder; `draftworth trace import` makes one")
        return found

    def read(self, source: SourceConfig, name: str, target: Path) -> Iterator[Found]:
        """Yield every request; see `Source.read`.

        Raises:
            UsageError: it is no trace, or of another tokenizer than the target's.
        """
        trace = open_trace(source.path, tokenizer=target)
        ours = tokenizer_hash(target)
        for batch in trace.batches():
            if batch.tokenizer_hash not in {None, ours}:
                raise UsageError(
                    f"{source.path}: its ids are of another tokenizer ({batch.tokenizer_hash}) than the target's "
                    f"({ours}): a head would learn nonsense; record it again with this target"
                )
            for at, request in enumerate(batch.request_ids):
                where = f"{source.path}: row {batch.first_row + at + 1}"
                prompt = batch.prompt(at)
                if not len(prompt):
                    yield where, BadRow(NO_PROMPT)
                    continue
                yield (
                    where,
                    Conversation(
                        id=f"{name}/{request}",
                        source=name,
                        category=batch.categories[at] or source.category or name,
                        # Copies: a view would keep the whole batch in memory.
                        ids=(
                            Ids(
                                np.array(prompt, np.int32),
                                np.array(batch.output(at), np.int32),
                                int(batch.thinking[at]),
                                bool(batch.exact[at]),
                            ),
                        ),
                        where=where,
                    ),
                )
        for reason, count in trace.bad.counts.items():
            for _ in range(count):
                yield trace.bad.first[reason], BadRow(reason)
