"""Which build of llama.cpp first had what, as read in its source.

llama.cpp numbers its builds (`b11434`). Read were 49 builds from 9093 (May 2026) to 11434 (October 2026). So `COUNTERS`
means: there in that build, not yet in the one read before it, which stands behind it. What is said of builds before
9093 is from the pull requests named there.
"""

import re

TESTED_ONLY = 5700  # pull request 14104 of 10 June 2025; its build was not read, so some builds later
"""Drafts that were thrown away for being short are no longer counted as drafted."""
OLDEST, NEWEST = 9093, 11434
"""The first and the last build that was read."""

TYPES_RENAMED = 9246  # not in 9113; pull request 22964
"""`draft` became `draft-simple`, and every kind that uses a draft model `draft-…`; a list of types is taken."""
DRAFT_DEFAULTS = 9246  # not in 9113
"""Draft models draft 3 tokens whatever their probability; before, 16 with a probability of at least 0.75."""
DRAFT_NEEDS_TYPE = 9464  # not in 9432; pull requests 23861 and 23987
"""A draft model alone no longer switches `draft-simple` on."""
MEAN_LENGTH = 9837  # not in 9811; pull request 24536
"""The log tells the mean length; statistics of each implementation moved to verbosity 4."""
REPLAYS_RIGHT = 10216  # not in 10204
"""The target's own token is no longer counted as accepted where a draft is verified a second time."""
COUNTERS = 10289  # not in 10276; pull request 26389
"""`/metrics` has counters of speculation."""
CACHED_COUNTER = 10448  # not in 10405
"""`/metrics` counts prompt tokens found in the cache."""
BY_FILE = 10448  # not in 10405
"""A draft model's file may say of what type it is (MTP, DFlash, DSpark)."""
N_MAX_CHECKED = 10448  # not in 10405
"""`--spec-draft-n-max` below 0 stops the server."""
DRAFT_IN_TIMINGS = 9093  # pull request 12603 of March 2025; not read in older builds
"""Answers carry `draft_n` wherever something was drafted."""
SYNTHETIC = 10666  # not in 10615; pull request 27711
"""`--spec-synth-len` and `--spec-synth-rates` accept drafts at a given rate."""
DRAFT_SAMPLING = 11401  # not in 11349
"""`--spec-draft-sampling`."""

TYPES: dict[str, int] = {
    "none": 0,
    "ngram-cache": 0,
    "ngram-simple": 0,
    "ngram-map-k": 0,
    "ngram-map-k4v": 0,
    "ngram-mod": 0,
    "draft-simple": TYPES_RENAMED,
    "draft-mtp": TYPES_RENAMED,
    "draft-eagle3": TYPES_RENAMED,
    "draft-dflash": 9837,  # not in 9811
    "draft-dspark": 10173,  # not in 10151
}
"""Every `--spec-type` to the first build that takes it; 0 for those the oldest build read takes."""

_BUILD = re.compile(r"(?:llama\.cpp )?[bB]?(?P<build>\d{3,6})(?:\.0\.0)?(?:$|[\s(-])")


def build_of(version: str | None) -> int | None:
    """Return the build number in `b11434`, `b11434-515e855`, `11434 (515e855)` or a package's `11434.0.0`, or None."""
    match = _BUILD.match(version or "")
    return int(match["build"]) if match else None


def named(build: int) -> str:
    """Return a build number as llama.cpp tags it."""
    return f"b{build}"


def title(version: str | None) -> str:
    """Return the engine's name with its version, where that is known."""
    build = build_of(version)
    if build is not None:
        return f"llama.cpp {named(build)}"
    return f"llama.cpp {version}" if version else "llama.cpp"
