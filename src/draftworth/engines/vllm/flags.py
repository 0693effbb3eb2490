"""Tells whether a command asks for speculation, in every spelling vLLM's argument parser takes.

Checked against vLLM 0.32.0's own parser (`utils/argparse_utils.py`, `engine/arg_utils.py`): underscores equal dashes,
`--flag=value` equals two words, `--speculative-config.method ngram` sets one key of the JSON, unambiguous prefixes
(`--specu`, `--spec-tok`, `-s`) are taken, `-sc` is short for `--speculative-config`, and a `--config` file's keys are
flags. Flags of older releases (`--speculative-model`, `--num-speculative-tokens`, `--ngram-prompt-lookup-max`) count.
"""

import re
from collections.abc import Sequence

from draftworth.engines.spellings import Spellings, block_keys
from draftworth.engines.vllm.layout import locate

_LONG = re.compile(r"--(?:specu|spec-|num-spec|ngram-prompt-lookup)")
_SHORT = frozenset({"-sc", "-s"})
_YAML_INLINE = re.compile(r"""[{,]\s*["']?(?P<key>[\w.+-]+)["']?\s*:""")


def behind_speculation(words: Sequence[str]) -> int | None:
    """Return the index behind a speculative flag and its value, or None where there is no such flag."""
    for index, word in enumerate(words):
        if _is_long(word):
            return min(len(words), index + (1 if "=" in word else 2))
    return None


def _is_long(word: str) -> bool:
    name = word.partition("=")[0].partition(".")[0].replace("_", "-")
    return bool(_LONG.match(name))


def _keys(text: str) -> list[str]:
    """Return the top-level keys of a YAML file; vLLM turns each into a flag."""
    if text.lstrip().startswith("{"):
        return [match["key"] for match in _YAML_INLINE.finditer(text)]
    return block_keys(text)


speculation_in = Spellings(locate, _is_long, short=_SHORT, keys=_keys).speculation_in
"""Returns how a command or its environment asks for speculation, as written there, or None."""
