"""The same prompt once: conversations that are repeated weigh no more than others, and are counted."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence

import numpy as np

from draftworth.training.sources.base import ASSISTANT, Conversation

AGAIN = "the same conversation again"
SAME_PROMPT = "the same prompt again"


def once(
    conversations: Sequence[Conversation], per_prompt: int, *, answers_count: bool
) -> tuple[list[int], list[tuple[int, str]]]:
    """Return which conversations are kept, and which were left out for which reason.

    Args:
        conversations: in order; the first ones are kept.
        per_prompt: at most so many with the same prompt, and never two that are equal.
        answers_count: whether recorded answers are used. Where all of them are written anew, conversations that differ
            in them only are the same one.

    Returns:
        Positions in `conversations`, ascending: those that are kept, and the others with their reason.
    """
    prompts: Counter[bytes] = Counter()
    wholes: set[bytes] = set()
    kept: list[int] = []
    left_out: list[tuple[int, str]] = []
    for at, one in enumerate(conversations):
        prompt, whole = prompt_key(one), _whole_key(one, answers_count=answers_count)
        if whole in wholes:
            left_out.append((at, AGAIN if answers_count else SAME_PROMPT))
        elif answers_count and prompts[prompt] >= per_prompt:
            left_out.append((at, SAME_PROMPT))
        else:
            prompts[prompt] += 1
            wholes.add(whole)
            kept.append(at)
    return kept, left_out


def prompt_key(one: Conversation) -> bytes:
    """Return what names a conversation's prompt: everything in front of the first answer, tools included."""
    if one.messages:
        return _digest([one.asked, one.tools])
    return hashlib.sha256(np.ascontiguousarray(one.ids[0].prompt, np.int32).tobytes()).digest()


def conversation_key(one: Conversation) -> str:
    """Return what names a conversation for answers that are written anew: all that is sent, as a hexadecimal digest."""
    return _whole_key(one, answers_count=bool(one.messages)).hex()


def _whole_key(one: Conversation, *, answers_count: bool) -> bytes:
    if one.messages:
        said = one.messages if answers_count else [m for m in one.messages if m["role"] != ASSISTANT]
        return _digest([said, one.tools])
    parts = [part for ids in one.ids for part in ([ids.prompt, ids.output] if answers_count else [ids.prompt])]
    return hashlib.sha256(b"|".join(np.ascontiguousarray(part, np.int32).tobytes() for part in parts)).digest()


def _digest(value: object) -> bytes:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True, default=str).encode()).digest()
