"""Which conversations are never trained on: chosen before anything else is done to them, by whole groups.

Conversations that begin alike belong to one group, so that neither a second sample of a prompt nor the later turns of a
recorded chat are on both sides. Acceptance on prompts that were trained on is no evidence.
"""

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from draftworth.training.sources.base import Conversation


def groups(conversations: Sequence[Conversation], tail: int) -> list[int]:
    """Return each conversation's group, numbered from 0 in order of appearance.

    Messages: the same texts of the user in front of the first answer. Ids: a request whose prompt, without the
    template's beginning of an answer, is how another's prompt begins (the next turn of a chat, or the same prompt).

    Args:
        conversations: all of them.
        tail: how many tokens at a prompt's end begin the answer; see `ChatTemplate.tail`.
    """
    parent = list(range(len(conversations)))

    def root(at: int) -> int:
        while parent[at] != at:
            parent[at] = parent[parent[at]]
            at = parent[at]
        return at

    def join(one: int, other: int) -> None:
        low, high = sorted((root(one), root(other)))
        parent[high] = low

    first: dict[bytes, int] = {}
    for at, one in enumerate(conversations):
        if one.messages:
            join(first.setdefault(_beginning(one), at), at)
    for one_at, other_at in _continued(conversations, tail):
        join(one_at, other_at)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(at), len(numbers)) for at in range(len(conversations))]


def _beginning(one: Conversation) -> bytes:
    said = [message["content"] for message in one.asked if message["role"] == "user"]
    return hashlib.sha256(json.dumps(said).encode()).digest()


def _continued(conversations: Sequence[Conversation], tail: int) -> list[tuple[int, int]]:
    """Return pairs of conversations of which the second's prompt begins with the first's."""
    # In the order of their bytes, big-endian, whatever begins with a prompt stands right behind it.
    entries: list[tuple[bytes, bool, int]] = []
    for at, one in enumerate(conversations):
        if not one.ids:
            continue
        prompt = one.ids[0].prompt
        asked = prompt[: len(prompt) - tail] if len(prompt) > tail else prompt
        entries.append((asked.astype(">u4").tobytes(), False, at))
        if len(asked) < len(prompt):
            entries.append((prompt.astype(">u4").tobytes(), True, at))
    entries.sort(key=lambda entry: entry[:2])
    found: list[tuple[int, int]] = []
    above: list[tuple[bytes, int]] = []
    for text, whole, at in entries:
        while above and not text.startswith(above[-1][0]):
            above.pop()
        if above:
            found.append((above[-1][1], at))
        if not whole:
            above.append((text, at))
    return found


def held_out(conversations: Sequence[Conversation], group: Sequence[int], share: float, seed: int) -> set[int]:
    """Return the groups that are held out: this share of each source's, at least one where a source has two.

    A group belongs to the source that had it first. Which ones are chosen depends on the seed and on a group's own
    content, not on the order of files.

    Args:
        conversations: all of them.
        group: of each.
        share: above 0, below 1.
        seed: any.
    """
    sources: dict[int, str] = {}
    drawn: dict[int, bytes] = {}
    for one, number in zip(conversations, group, strict=True):
        sources.setdefault(number, one.source)
        draw = hashlib.sha256(f"{seed}:".encode() + _content(one)).digest()
        drawn[number] = min(drawn.get(number, draw), draw)
    chosen: set[int] = set()
    for source in dict.fromkeys(sources.values()):
        own = sorted((number for number, name in sources.items() if name == source), key=lambda number: drawn[number])
        count = max(1, round(share * len(own))) if len(own) > 1 else 0
        chosen.update(own[: min(count, len(own) - 1)] if count else ())
    return chosen


def _content(one: Conversation) -> bytes:
    if one.messages:
        return _beginning(one)
    return np.ascontiguousarray(one.ids[0].prompt, np.int32).tobytes()
