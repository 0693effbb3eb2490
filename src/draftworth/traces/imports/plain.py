"""A person's own records: a prompt and an output a row, as text or as lists of ids, in JSON lines, a list or a table.

The names are those of a trace, of the engines' own fields, and of Arctic's simulator (`prompt`, `response`).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from draftworth.traces.columns import NO_OUTPUT, BadRow
from draftworth.traces.imports.base import Found, Recorded, Sample, is_id_list, number_of, records

PROMPT_IDS = ("prompt_token_ids", "prompt_ids", "input_ids", "prompt")
OUTPUT_IDS = (
    "output_token_ids",
    "completion_token_ids",
    "response_token_ids",
    "token_ids",
    "output_ids",
    "response_ids",
    "response",
    "output",
    "completion",
    "answer",
)
PROMPT_TEXT = ("prompt", "question", "instruction", "input")
OUTPUT_TEXT = ("response", "output", "completion", "answer", "generated_text", "text")
NAME = ("request_id", "id", "question_id")


class Plain:
    """One request a row: a prompt (`prompt`, `messages`, or ids) and an output (`response`, `output`, … or ids).

    Optional: `request_id`, `thinking_tokens`, `reasoning`, `category`, `temperature`, `model`.
    """

    name = "plain"
    title = "a prompt and a response a row, as text or as ids (JSON lines, a JSON list, Parquet)"

    def fits(self, sample: Sample) -> bool:
        """Return whether there is something that can be a prompt and an output."""
        keys = sample.first.keys()
        return bool(keys & {*PROMPT_IDS, *PROMPT_TEXT, "messages"}) and bool(keys & {*OUTPUT_IDS, *OUTPUT_TEXT})

    def read(self, path: Path) -> Iterator[Found]:
        """Yield every row; see `Importer.read`."""
        for where, record in records(path):
            yield where, record if isinstance(record, BadRow) else _recorded(record)


def _recorded(data: Mapping[str, Any]) -> Recorded | BadRow:
    output_ids = next((data[key] for key in OUTPUT_IDS if is_id_list(data.get(key)) or data.get(key) == []), None)
    output_text = next((data[key] for key in OUTPUT_TEXT if isinstance(data.get(key), str)), None)
    if output_ids is None and output_text is None:
        return BadRow(NO_OUTPUT)
    messages, thinking, tools = data.get("messages"), data.get("thinking_tokens"), data.get("tools")
    name = next((data[key] for key in NAME if isinstance(data.get(key), str | int)), None)
    whole = messages if isinstance(messages, list) and all(isinstance(one, Mapping) for one in messages) else None
    return Recorded(
        request_id=None if name is None else str(name),
        prompt_ids=next((data[key] for key in PROMPT_IDS if is_id_list(data.get(key))), None),
        prompt_text=next((data[key] for key in PROMPT_TEXT if isinstance(data.get(key), str)), None),
        messages=whole or None,
        tools=tools if isinstance(tools, list) else None,
        output_ids=output_ids,
        output_text=output_text,
        reasoning=data["reasoning"] if isinstance(data.get("reasoning"), str) else "",
        thinking=thinking if type(thinking) is int else None,
        category=data["category"] if isinstance(data.get("category"), str) else "",
        temperature=number_of(data.get("temperature")),
        model=data["model"] if isinstance(data.get("model"), str) else None,
        whole=data.get("exact") is not False,
    )
