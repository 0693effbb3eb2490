"""What tests of traces share: a tokenizer of a few words, rows, and a naive reading of batches."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from draftworth.traces.base import Trace
from draftworth.traces.store import TraceWriter, open_trace

DATA = Path(__file__).parent / "data"
WORDS = ("[UNK]", "<s>", "user", "assistant", "system", "hello", "there", "a", "b", "c", "think", ":", "short")
TEMPLATE = (
    "{{ bos_token }} {% for m in messages %}{{ m['role'] }} : {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}assistant :{% endif %}"
)


def tokenizer(folder: Path, template: str | None = TEMPLATE) -> Path:
    """Write the files of a tokenizer whose id of a word is its place in WORDS; a text prompt begins with `<s>`."""
    folder.mkdir(exist_ok=True)
    special = {"id": 1, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False}
    document = {
        "version": "1.0",
        "added_tokens": [{**special, "normalized": False, "special": True}],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "model": {"type": "WordLevel", "vocab": {word: at for at, word in enumerate(WORDS)}, "unk_token": "[UNK]"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(document))
    config: dict[str, Any] = {"bos_token": {"content": "<s>"}}
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def ids(*words: str) -> list[int]:
    """Return the ids of words."""
    return [WORDS.index(word) for word in words]


def row(number: int, prompt: Sequence[int], output: Sequence[int], **more: Any) -> dict[str, Any]:
    """Return a row as JSON lines have it."""
    return {
        "request_id": f"r{number}",
        "prompt_token_ids": list(prompt),
        "output_token_ids": list(output),
        "thinking_tokens": None,
        "category": "",
        "temperature": None,
        "model": "m",
        "tokenizer_hash": None,
        "exact": True,
        **more,
    }


def write(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """Write rows by the writer."""
    with TraceWriter(path) as writer:
        for one in rows:
            writer.add(
                request_id=one["request_id"],
                prompt=one["prompt_token_ids"],
                output=one["output_token_ids"],
                thinking=one["thinking_tokens"],
                category=one["category"],
                temperature=one["temperature"],
                model=one["model"],
                tokenizer_hash=one["tokenizer_hash"],
                exact=one["exact"],
            )
    return path


def jsonl(path: Path, rows: Iterable[Any]) -> Path:
    """Write rows as JSON lines; texts as they are."""
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows))
    return path


def table(path: Path, rows: Sequence[dict[str, Any]], types: dict[str, pa.DataType] | None = None) -> Path:
    """Write rows as any Parquet file has them."""
    names = list(rows[0])
    columns = {name: pa.array([one.get(name) for one in rows], (types or {}).get(name)) for name in names}
    pq.write_table(pa.table(columns), path)
    return path


def read(trace: Path | Trace, **options: Any) -> list[dict[str, Any]]:
    """Return the rows of a trace as JSON lines have them, read one by one."""
    opened = open_trace(trace, **options) if isinstance(trace, Path) else trace
    found = []
    for batch in opened.batches():
        assert len(batch.offsets) == len(batch) + 1
        for at in range(len(batch)):
            known = int(batch.thinking[at]) >= 0
            warm = batch.temperatures[at] == batch.temperatures[at]
            found.append(
                {
                    "request_id": batch.request_ids[at],
                    "prompt_token_ids": batch.prompt(at).tolist(),
                    "output_token_ids": batch.output(at).tolist(),
                    "thinking_tokens": int(batch.thinking[at]) if known else None,
                    "category": batch.categories[at],
                    "temperature": float(batch.temperatures[at]) if warm else None,
                    "model": batch.model,
                    "tokenizer_hash": batch.tokenizer_hash,
                    "exact": bool(batch.exact[at]),
                }
            )
    return found
