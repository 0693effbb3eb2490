"""llama.cpp's flags: their spellings, what they set, and which of them ask for speculation.

`common/arg.cpp` of 9093 and 11434. In a flag that begins with two dashes underscores are dashes; a value is always the
next word (`--flag=value` is refused); an environment variable `LLAMA_ARG_…` sets what no flag does.
"""

from collections.abc import Iterator, Mapping, Sequence

from draftworth.engines.llamacpp.layout import locate
from draftworth.engines.shown import LONGEST, shortened
from draftworth.engines.spellings import in_string

# Every spelling of the flags this package looks at, to the newest long one.
_SPELLINGS: dict[str, tuple[str, ...]] = {
    "--model": ("-m",),
    "--model-url": ("-mu",),
    "--hf-repo": ("-hf", "-hfr"),
    "--docker-repo": ("-dr",),
    "--parallel": ("-np",),
    "--ctx-size": ("-c",),
    "--batch-size": ("-b",),
    "--ubatch-size": ("-ub",),
    "--flash-attn": ("-fa",),
    "--cache-type-k": ("-ctk",),
    "--cache-type-v": ("-ctv",),
    "--mmproj": ("-mm",),
    "--threads": ("-t",),
    "--gpu-layers": ("-ngl", "--n-gpu-layers"),
    "--cache-reuse": (),
    "--host": (),
    "--port": (),
    "--lookup-cache-static": ("-lcs",),
    "--lookup-cache-dynamic": ("-lcd",),
    "--verbosity": ("-lv", "--log-verbosity"),
    "--spec-type": (),
    "--spec-draft-model": ("-md", "--model-draft"),
    "--spec-draft-hf": ("-hfd", "-hfrd", "--hf-repo-draft"),
    "--spec-draft-n-max": ("--draft", "--draft-n", "--draft-max"),
    "--spec-draft-n-min": ("--draft-min", "--draft-n-min"),
    "--spec-draft-p-min": ("--draft-p-min",),
    "--spec-draft-p-split": ("--draft-p-split",),
    "--spec-draft-ngl": ("-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft"),
    "--spec-draft-device": ("-devd", "--device-draft"),
    "--spec-draft-type-k": ("-ctkd", "--cache-type-k-draft"),
    "--spec-draft-type-v": ("-ctvd", "--cache-type-v-draft"),
    "--spec-draft-threads": ("-td", "--threads-draft"),
    "--spec-draft-threads-batch": ("-tbd", "--threads-batch-draft"),
    "--spec-draft-sampling": (),
    "--spec-draft-n-cpu-moe": ("--spec-draft-ncmoe", "-ncmoed", "--n-cpu-moe-draft"),
    "--spec-draft-override-tensor": ("-otd", "--override-tensor-draft"),
    "--spec-synth-len": (),
    "--spec-synth-rates": (),
}
_SWITCHES: dict[str, tuple[str, ...]] = {
    "--metrics": (),
    "--slots": (),
    "--no-slots": (),
    "--context-shift": (),
    "--no-context-shift": (),
    "--cont-batching": ("-cb",),
    "--no-cont-batching": ("-nocb",),
    "--kv-unified": ("-kvu",),
    "--no-kv-unified": ("-no-kvu",),
    "--log-disable": (),
    "--spec-default": (),
    "--spec-draft-backend-sampling": (),
    "--no-spec-draft-backend-sampling": (),
    "--spec-draft-cpu-moe": ("-cmoed", "--cpu-moe-draft"),
}
_NEWEST = {
    old: new for table in (_SPELLINGS, _SWITCHES) for new, spellings in table.items() for old in (new, *spellings)
}
_MODELS = ("--model", "--hf-repo", "--model-url", "--docker-repo")
DRAFTS = ("--spec-draft-model", "--spec-draft-hf")
"""The flags that name a draft model."""
REMOVED: dict[str, str] = {
    "--draft": "--spec-draft-n-max, or --spec-ngram-mod-n-max for ngram-mod",
    "--draft-n": "--spec-draft-n-max, or --spec-ngram-mod-n-max for ngram-mod",
    "--draft-max": "--spec-draft-n-max, or --spec-ngram-mod-n-max for ngram-mod",
    "--draft-min": "--spec-draft-n-min, or --spec-ngram-mod-n-min for ngram-mod",
    "--draft-n-min": "--spec-draft-n-min, or --spec-ngram-mod-n-min for ngram-mod",
    "--spec-ngram-size-n": "--spec-ngram-simple-size-n (or -map-k-, -map-k4v-), or --spec-ngram-mod-n-match",
    "--spec-ngram-size-m": "--spec-ngram-simple-size-m (or -map-k-, -map-k4v-)",
    "--spec-ngram-min-hits": "--spec-ngram-simple-min-hits (or -map-k-, -map-k4v-)",
}
"""Flags that pull request 22397 of April 2026 took out; a server that meets one does not start."""
VARIABLES: dict[str, str] = {
    "LLAMA_ARG_SPEC_TYPE": "--spec-type",
    "LLAMA_ARG_SPEC_DRAFT_MODEL": "--spec-draft-model",
    "LLAMA_ARG_MODEL_DRAFT": "--spec-draft-model",
    "LLAMA_ARG_SPEC_DRAFT_HF_REPO": "--spec-draft-hf",
    "LLAMA_ARG_HFD_REPO": "--spec-draft-hf",
    "LLAMA_ARG_DRAFT_MAX": "--draft-max",
    "LLAMA_ARG_DRAFT_MIN": "--draft-min",
    "LLAMA_ARG_SPEC_DRAFT_N_MAX": "--spec-draft-n-max",
    "LLAMA_ARG_SPEC_DRAFT_N_MIN": "--spec-draft-n-min",
    "LLAMA_ARG_SPEC_DRAFT_P_MIN": "--spec-draft-p-min",
    "LLAMA_ARG_SPEC_SYNTH_LEN": "--spec-synth-len",
    "LLAMA_ARG_SPEC_SYNTH_RATES": "--spec-synth-rates",
    "LLAMA_ARG_ENDPOINT_METRICS": "--metrics",
    "LLAMA_ARG_N_PARALLEL": "--parallel",
    "LLAMA_ARG_CTX_SIZE": "--ctx-size",
    "LLAMA_ARG_MMPROJ": "--mmproj",
    "LLAMA_ARG_CACHE_TYPE_K": "--cache-type-k",
    "LLAMA_ARG_CACHE_TYPE_V": "--cache-type-v",
    "LLAMA_ARG_FLASH_ATTN": "--flash-attn",
}
"""Environment variables to the flag each stands for."""
_OFF = frozenset({"0", "false", "off", "disabled", ""})


def plain(word: str) -> str:
    """Return a flag as llama.cpp looks it up: underscores of a long flag are dashes."""
    return word.replace("_", "-") if word.startswith("--") else word


def newest(word: str) -> str:
    """Return a flag's newest spelling; a flag that is not known here as it is."""
    name = plain(word)
    return _NEWEST.get(name, name)


def takes_value(word: str) -> bool:
    """Whether the word behind a flag is its value, for a flag that is known here or is one of speculation."""
    name = newest(word)
    return name in _SPELLINGS or (name.startswith("--spec-") and name not in _SWITCHES)


def read(words: Sequence[str]) -> dict[str, str]:
    """Return what words set: newest spelling to value, `on` for a switch; of a flag written twice the last value.

    The types of several `--spec-type` add up, as in llama.cpp.
    """
    found: dict[str, str] = {}
    index = 0
    while index < len(words):
        name = newest(words[index])
        if takes_value(words[index]) and index + 1 < len(words):
            value = words[index + 1]
            found[name] = f"{found[name]},{value}" if name == "--spec-type" and name in found else value
            index += 2
        else:
            if name.startswith("-"):
                found[name] = "on"
            index += 1
    return found


def of_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return what variables set, as `read` does; a switch that is off is left out."""
    found = {}
    for variable, name in VARIABLES.items():
        value = env.get(variable)
        if value is None or (newest(name) in _SWITCHES and value.lower() in _OFF):
            continue
        found[newest(name)] = value
    return found


def speculation_in(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return how a command or its environment asks for speculation, as written there, or None.

    A type other than `none`, a draft model and `--spec-default` ask for it; parameters alone do not.

    Args:
        command: the words of the command.
        env: the service's environment.
    """
    for how in _in_words(command):
        return shortened(how)
    for variable, name in VARIABLES.items():
        value = env.get(variable)
        if value and _asks(newest(name), value):
            return f"{variable}={value}"[:LONGEST]
    return None


def _asks(name: str, value: str) -> bool:
    if name == "--spec-type":
        return any(one.strip() not in ("", "none") for one in value.split(","))
    return name in DRAFTS


def _in_words(words: Sequence[str]) -> Iterator[str]:
    place = locate(words)
    for index, word in enumerate(words):
        name = newest(word)
        value = words[index + 1] if index + 1 < len(words) else ""
        if place is not None and place.script and index == place.start:
            yield from in_string(word, _in_words, _names_speculation)
        elif name == "--spec-default" or (name.startswith("--fim-qwen") and name.endswith("-spec")):
            yield word
        elif (name.startswith("--") or place is not None) and _asks(name, value):
            yield f"{word} {value}"
        elif any(_names_speculation(piece) for piece in word.split()[1:]):
            yield word  # an assignment that holds flags, such as ARGS="-fa on --spec-type ngram-mod"


def _names_speculation(word: str) -> bool:
    return newest(word) in ("--spec-type", "--spec-default", *DRAFTS)


def model_of(words: Sequence[str]) -> str | None:
    """Return the model that llama.cpp's own arguments name, or None."""
    found = read(words)
    model = next((found[name] for name in _MODELS if name in found), None)
    return model if model and "$" not in model else None
