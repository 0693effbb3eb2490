"""Where reasoning ends in an answer, and which of it is an empty scaffold that nobody wrote.

Templates of hybrid models (Qwen3's and others') put empty reasoning marks in front of an answer without reasoning; a
head that is trained on them learns to draft what it never has to (reported in NVIDIA-NeMo/Automodel #3738 and #3739).
"""

import re

_PAIRS = (  # as the chat templates of public models write them
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<thinking>", "</thinking>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<think:opensource>", "</think:opensource>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
)
_HARMONY = "<|channel|>final<|message|>"
"""Where the answer begins behind reasoning in gpt-oss's format."""
_EMPTY = tuple(re.compile(rf"\s*(?:{re.escape(start)}\s*)?{re.escape(end)}\s*") for start, end in _PAIRS)
_SPACE = re.compile(r"\s*")
ENDS = (*(end for _, end in _PAIRS), _HARMONY)
"""Texts that end reasoning."""
STARTS = tuple(start for start, _ in _PAIRS)
"""Texts that begin reasoning."""


def scaffold(text: str) -> int:
    """Return how many characters at an answer's beginning are reasoning without content; 0 for none.

    Args:
        text: all the target wrote; its prompt may have opened the reasoning already.
    """
    for pattern in _EMPTY:
        found = pattern.match(text)
        if found:
            return found.end()
    return 0


def reasoning(text: str) -> int:
    """Return how many characters at an answer's beginning are reasoning, its marks and the space behind included.

    Args:
        text: all the target wrote. Reasoning that never ends is all of it where a mark begins it.
    """
    ends = [at + len(end) for end in ENDS if (at := text.find(end)) >= 0]
    if not ends:
        return len(text) if text.lstrip().startswith(STARTS) else 0
    found = _SPACE.match(text, min(ends))
    return found.end() if found else min(ends)


def opened(prompt: str) -> int | None:
    """Return where a prompt that ends in the beginning of reasoning opens it; None for every other prompt."""
    end = prompt.rstrip()
    start = next((start for start in STARTS if end.endswith(start)), None)
    return None if start is None else len(end) - len(start)


def closed(prompt: str) -> bool:
    """Tell whether a prompt ends in reasoning that is over, so that the answer itself comes next."""
    return prompt.rstrip().endswith(ENDS)
