"""SPEED-Bench, as the Hugging Face hub has it (nvidia/SPEED-Bench) and as its preparation writes it."""

from draftworth.bench.base import Prompt
from draftworth.errors import UsageError
from draftworth.workloads import fields
from draftworth.workloads.base import Row

_KEYS = frozenset({"question_id", "category", "source", "src_id"})
# What the hub's table has instead of texts that may not be passed on.
_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
_PREPARE = (
    "https://raw.githubusercontent.com/NVIDIA-NeMo/Skills/refs/heads/main/nemo_skills/dataset/speed-bench/prepare.py"
)


class SpeedBench:
    """One conversation a row: `question_id`, `category`, and `turns` (the hub's table) or `messages` (prepared).

    Prepared rows have every turn of the user as a message: they are turns of a conversation, not one request.
    """

    name = "speed-bench"
    title = "SPEED-Bench, prepared"
    skips_repeated_ids = False

    def fits(self, keys: frozenset[str]) -> bool:
        """Return whether the columns that only SPEED-Bench has are there."""
        return keys >= _KEYS and not keys.isdisjoint({"turns", "messages"})

    def prompt(self, row: Row) -> Prompt:
        """Return the row's prompt; see `Layout.prompt`."""
        for key in ("question_id", "category"):
            if key not in row.data:
                raise UsageError(f'{row.where}: "{key}" is missing, which every row of SPEED-Bench has')
        if "messages" in row.data:
            messages, turns = fields.conversation(fields.messages(row), row.where)
        elif "turns" in row.data:
            messages, turns = fields.turns(fields.texts(row, "turns"))
        else:
            raise UsageError(f'{row.where}: "turns" or "messages" is missing, which every row of SPEED-Bench has')
        texts = [message.get("content", "") for message in messages] + [turn.content for turn in turns]
        if any(_PLACEHOLDER in text for text in texts):
            raise UsageError(
                f"{row.where}: the text is a placeholder: SPEED-Bench has to be prepared first, "
                f"curl -LsSf {_PREPARE} | python3 - --output_dir speed-bench; then use the .jsonl files it writes"
            )
        return Prompt(
            id=fields.identity(row, ("question_id",), ""),
            category=fields.category(row, ""),
            messages=messages,
            turns=turns,
        )
