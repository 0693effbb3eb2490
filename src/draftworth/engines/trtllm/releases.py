"""What releases of TensorRT-LLM take, as far as their sources could be read.

Decoding types are the keys of `DecodingBaseConfig.from_dict` (0.21, 1.0, 1.1, 1.2) and the `decoding_type` literals of
the main branch at 1.3.0rc (`llmapi/llm_args.py`).
"""

import re
from typing import NamedTuple

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?P<rest>.*)")
_EARLY = re.compile(r"[.-]?(?:a|b|rc|dev)\d*")

_TYPES_0 = ("MTP", "Medusa", "Eagle", "Lookahead", "NGram", "DraftTarget")
_TYPES_1_0 = (*_TYPES_0, "UserProvided", "AUTO")
_TYPES_1_2 = (*_TYPES_1_0, "SaveState")
_TYPES_1_3 = (*_TYPES_1_2, "Eagle3", "Draft_Target", "User_Provided", "SA", "PARD", "DFlash")

ALL_TYPES: tuple[str, ...] = _TYPES_1_3
"""Every decoding type of any release that was read."""
TENSORRT_ONLY = frozenset({"Medusa", "Lookahead"})
"""Types that only the TensorRT backend has (`supports_backend`)."""
PYTORCH_ONLY = frozenset({"NGram", "SA", "PARD", "DFlash", "AUTO"})
"""Types that only the PyTorch backend has."""
NEEDS_DRAFT_MODEL = frozenset({"Eagle", "Eagle3", "DraftTarget", "Draft_Target", "PARD", "DFlash"})
"""Types whose draft comes from a checkpoint of its own."""
NEEDS_LENGTH = frozenset({"Eagle", "Eagle3", "NGram", "DraftTarget", "Draft_Target", "SA"})
"""Types that refuse to start without a `max_draft_len` above 0."""


class Release(NamedTuple):
    """A version, for comparisons.

    Attributes:
        number: major, minor, patch.
        final: not a candidate or a development build.
    """

    number: tuple[int, int, int]
    final: bool


def parse(version: str | None) -> Release | None:
    """Return a version as numbers, or None where it is unknown or has another form."""
    match = _VERSION.fullmatch((version or "").strip())
    if not match:
        return None
    return Release((int(match[1]), int(match[2]), int(match[3] or 0)), not _EARLY.match(match["rest"]))


def before(version: str | None, *number: int) -> bool | None:
    """Return whether a version is before a release (its candidates included in it), or None where it is unknown."""
    known = parse(version)
    return None if known is None else known.number[: len(number)] < number


def types_of(version: str | None) -> tuple[str, ...] | None:
    """Return the decoding types of a release, or None where they are not known (a later minor, an unknown version).

    The candidates of 1.2 and 1.3 got their types one by one, so those of the release hold for them too.
    """
    known = parse(version)
    if known is None or known.number >= (1, 4, 0):
        return None
    for first, types in (((1, 3), _TYPES_1_3), ((1, 2), (*_TYPES_1_2, "Eagle3")), ((1, 0), _TYPES_1_0)):
        if known.number[:2] >= first:
            return types
    return _TYPES_0 if known.number[:2] == (0, 21) else None


def counts_requests_right(version: str | None) -> bool:
    """Whether a release holds PR #17082, which counts the drafts that were verified, by request and by position.

    It was merged into main in August 2026, between two candidates of 1.3.0; which candidate has it first could not be
    read, so only releases after all of them are taken for certain.
    """
    known = parse(version)
    return known is not None and known.number >= (1, 3, 0) and (known.final or known.number > (1, 3, 0))
