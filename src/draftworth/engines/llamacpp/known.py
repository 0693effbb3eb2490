"""Every flag of speculation, and the builds that take it (`common/arg.cpp` of the builds in `releases.py`)."""

from draftworth.engines.llamacpp import releases

_GROUPS: dict[str, str] = {
    "--spec-draft-": "n-max n-min p-min p-split model hf ngl device type-k type-v threads threads-batch cpu-mask "
    "cpu-mask-batch cpu-range cpu-range-batch cpu-strict cpu-strict-batch prio prio-batch poll poll-batch "
    "override-tensor cpu-moe n-cpu-moe ncmoe",
    "--spec-ngram-simple-": "size-n size-m min-hits",
    "--spec-ngram-map-k-": "size-n size-m min-hits",
    "--spec-ngram-map-k4v-": "size-n size-m min-hits",
    "--spec-ngram-mod-": "n-match n-min n-max",
    "--spec-": "type default",
}
FIRST: dict[str, int] = {f"{group}{name}": 0 for group, names in _GROUPS.items() for name in names.split()} | {
    "--spec-draft-backend-sampling": 9310,  # not in 9246
    "--no-spec-draft-backend-sampling": 9310,
    "--spec-synth-len": releases.SYNTHETIC,
    "--spec-synth-rates": releases.SYNTHETIC,
    "--spec-draft-sampling": releases.DRAFT_SAMPLING,
}
"""Every flag to the first build that takes it; 0 for those of the oldest build read."""
LAST: dict[str, int] = {"--spec-draft-ctx-size": 9093, "--spec-draft-replace": 9093, "--spec-replace": 9093}
"""Flags that went: the last build read that takes them."""

GROUP_OF: dict[str, str] = {
    "ngram-simple": "--spec-ngram-simple-",
    "ngram-map-k": "--spec-ngram-map-k-",
    "ngram-map-k4v": "--spec-ngram-map-k4v-",
    "ngram-mod": "--spec-ngram-mod-",
}
"""A type that drafts from the text to what its own flags begin with."""
LENGTH_OF: dict[str, str] = {
    "ngram-simple": "--spec-ngram-simple-size-m",
    "ngram-map-k": "--spec-ngram-map-k-size-m",
    "ngram-map-k4v": "--spec-ngram-map-k4v-size-m",
    "ngram-mod": "--spec-ngram-mod-n-max",
}
"""A type to the flag that says how many tokens it drafts at most; ngram-cache drafts 8 (`common_speculative_n_max`)."""
OLD_TYPES: dict[str, str] = {"draft": "draft-simple", "eagle3": "draft-eagle3", "mtp": "draft-mtp"}
"""Names of May 2026 and of forks to what they are called since."""
OF_DRAFTS: frozenset[str] = frozenset({"--spec-draft-n-max", "--spec-draft-n-min", "--spec-draft-p-min"})
"""Flags that only types with a draft model heed."""


def group_of(name: str) -> str | None:
    """Return the one type a flag is of, or None."""
    return next((kind for kind, group in GROUP_OF.items() if name.startswith(group)), None)
