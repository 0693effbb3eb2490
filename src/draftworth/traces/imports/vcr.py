"""Traces of vllm-vcr: a record a request with its latencies, and its output's ids where the capture asked for them.

Format: crates/sim-trace/src/trace.rs of github.com/neuralmagic/vllm-vcr: JSON lines, the first may be `{"meta": …}`;
`output_token_ids` is there when the tap ran with `--record-tokens`. Prompts are never recorded, only hashes of their
blocks: what a drafter would have found in a prompt is not known, so such a trace is taken only where a person says so.
"""

from collections.abc import Iterator
from pathlib import Path

from draftworth.traces.columns import BadRow
from draftworth.traces.imports.base import Found, Recorded, Sample, is_id_list, object_of, records

NO_IDS = "no output ids (vllm-vcr records them with --record-tokens)"
NO_PROMPTS = "vllm-vcr records no prompt ids; --outputs-only takes the outputs alone"
_KEYS = frozenset({"prompt_tokens", "output_tokens", "ttft_ms"})


class Vcr:
    """One request a record: `prompt_tokens`, `output_tokens`, `ttft_ms`, `itl_ms`, `itl_tokens`, `output_token_ids`.

    Args:
        outputs_only: take requests whose prompts are not known, with empty prompts.
    """

    name = "vllm-vcr"
    title = "traces of vllm-vcr (outputs only)"

    def __init__(self, *, outputs_only: bool = False) -> None:
        self._outputs_only = outputs_only

    def fits(self, sample: Sample) -> bool:
        """Return whether the first record has latencies, or is vllm-vcr's line about the capture."""
        first = sample.first
        return first.keys() >= _KEYS or (first.keys() == {"meta"} and '"ttft_ms"' in sample.text)

    def read(self, path: Path) -> Iterator[Found]:
        """Yield every request; see `Importer.read`."""
        model: str | None = None
        for where, record in records(path):
            if isinstance(record, BadRow):
                yield where, record
            elif "meta" in record:
                named = object_of(record["meta"]).get("model")
                model = named if isinstance(named, str) else None
            elif not is_id_list(record.get("output_token_ids")):
                yield where, BadRow(NO_IDS)
            elif not self._outputs_only:
                yield where, BadRow(NO_PROMPTS)
            else:
                ids = record["output_token_ids"]
                # The ids are the server's, but half of the request is not there: never called exact.
                yield where, Recorded(prompt_ids=[], output_ids=ids, model=model, whole=False)
