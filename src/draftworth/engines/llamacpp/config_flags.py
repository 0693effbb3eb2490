"""Writes a speculative configuration as llama.cpp's flags.

Keys are flags without their dashes, underscores for dashes: `{spec_type = "ngram-simple", spec_ngram_simple_size_m =
8}`. With `type` instead of `spec_type` they may be short: `{type = "ngram-simple", size_m = 8}`. A short key is of the
type's own group (`--spec-ngram-simple-…`), for every type with a draft model of `--spec-draft-…`, where `model` and
`hf` name the draft; `synth_len` and `synth_rates` are of `--spec-…`. Several types take tables of their own:
`{type = "ngram-mod,draft-simple", "ngram-mod" = {n_max = 32}, draft = {model = "draft.gguf"}}`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from draftworth.engines.llamacpp import flags
from draftworth.errors import UsageError

_EXAMPLE = 'for example type = "ngram-simple"'
_OTHERS = {
    "method": "type",
    "num_speculative_tokens": "n_max of a draft model or of ngram-mod, size_m of ngram-simple and ngram-map",
    "prompt_lookup_max": "size_n, or n_match of ngram-mod",
    "prompt_lookup_min": "size_n, or n_match of ngram-mod",
    "algorithm": "type",
    "num_draft_tokens": "n_max, which does not count the root",
}
_WHOLE = frozenset({"synth-len", "synth-rates"})  # of speculation as a whole, whatever the type
_TYPE = ("type", "spec_type", "spec-type")


def types_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the types a configuration names, as written; none where it names none."""
    found: list[str] = []
    for key in _TYPE:
        value = config.get(key)
        names = value if isinstance(value, (list, tuple)) else str(value).split(",") if value else ()
        found += [str(name).strip() for name in names if str(name).strip()]
    return tuple(found)


def speculative_flags(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the flags of a speculative configuration: the type first, the others by name.

    True gives a switch alone; False and None leave it out; a list is joined with commas.

    Raises:
        UsageError: it names no way to speculate, uses another engine's names, names one flag twice, or cannot be
            written.
    """
    for theirs, ours in _OTHERS.items():
        if theirs in config:
            raise UsageError(
                f'speculative_config has "{theirs}", which is another engine\'s name; llama.cpp has {ours}'
            )
    types = types_of(config)
    pairs: dict[str, Any] = {}
    for name, value in _named(config, types):
        if name in pairs:
            raise UsageError(f"speculative_config sets {name} twice")
        pairs[name] = value
    if not types and not any(flags.newest(name) in (*flags.DRAFTS, "--spec-default") for name in pairs):
        raise UsageError(f"speculative_config needs a type, {_EXAMPLE}")
    words = ["--spec-type", ",".join(types)] if types else []
    for name in sorted(pairs):
        words += _written(name, pairs[name])
    return tuple(words)


def _named(config: Mapping[str, Any], types: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if key in _TYPE:
            continue
        name = str(key).strip().lstrip("-").replace("_", "-")
        if isinstance(value, Mapping):
            for inner, one in value.items():
                yield _grouped(name, str(inner).replace("_", "-")), one
        elif flags.newest(f"-{name}") != f"-{name}":
            yield f"-{name}", value  # `md`, `ngld`: spellings with one dash
        elif "type" in config and not flags.newest(f"--{name}").startswith(("--spec-", "--no-spec-")):
            yield _short(name, types), value
        else:
            yield f"--{name}", value


def _short(name: str, types: tuple[str, ...]) -> str:
    if name in _WHOLE:
        return f"--spec-{name}"
    groups = {"draft" if one.startswith("draft") else one for one in types}
    if len(groups) != 1:
        raise UsageError(
            f'speculative_config has several types and "{name}" says not of which: write spec_…, or a table of each'
        )
    return _grouped(groups.pop(), name)


def _grouped(group: str, name: str) -> str:
    return f"--spec-{'draft' if group.startswith('draft') else group}-{name}"


def _written(name: str, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [name]
    if isinstance(value, (list, tuple)):
        return [name, ",".join(str(one) for one in value)]
    if isinstance(value, (str, int, float)):
        return [name, str(value)]
    raise UsageError(f"speculative_config: {name} cannot be written as a flag's value: {value!r}")
