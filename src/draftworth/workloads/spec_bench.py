"""Question files of Spec-Bench and MT-Bench."""

from draftworth.bench.base import Prompt
from draftworth.errors import UsageError
from draftworth.workloads import fields
from draftworth.workloads.base import Row

_KEYS = frozenset({"question_id", "category", "turns"})


class SpecBench:
    """One conversation a row: `question_id`, `category`, `turns`; a `reference` is ignored.

    Every turn is sent, each with the server's own answers before it.
    """

    name = "spec-bench"
    title = "question files of Spec-Bench and MT-Bench"
    skips_repeated_ids = False

    def fits(self, keys: frozenset[str]) -> bool:
        """Return whether the three keys are there."""
        return keys >= _KEYS

    def prompt(self, row: Row) -> Prompt:
        """Return the row's prompt; see `Layout.prompt`."""
        for key in ("question_id", "category", "turns"):
            if key not in row.data:
                raise UsageError(
                    f'{row.where}: "{key}" is missing, which every question of Spec-Bench has; '
                    'if this file is your own, give format = "plain"'
                )
        messages, turns = fields.turns(fields.texts(row, "turns"))
        return Prompt(
            id=fields.identity(row, ("question_id",), ""),
            category=fields.category(row, ""),
            messages=messages,
            turns=turns,
        )
