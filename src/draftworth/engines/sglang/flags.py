"""Tells whether a command asks for speculation, in every spelling SGLang's argument parser takes.

The parser is argparse (`server_args.py`, 0.4.6 to 0.5.23): `--flag=value` equals two words, an unambiguous beginning of
a flag is taken (`--speculative-alg`), underscores are not, and the keys of a `--config` file (YAML) are flags.
"""

import re
from collections.abc import Sequence

from draftworth.engines.sglang.layout import locate
from draftworth.engines.spellings import Spellings

_FLAG = re.compile(r"--specu[\w-]*")


def _is_speculative(word: str) -> bool:
    """Tell whether a word is a flag of speculation, with or without its value."""
    return bool(_FLAG.fullmatch(word.partition("=")[0].replace("_", "-")))


def options(words: Sequence[str]) -> dict[str, str]:
    """Return SGLang's flags among its own words: name with dashes and without the leading ones, to value.

    A flag without a value gives "True".
    """
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        if not word.startswith("--") or word == "--":
            continue
        name, equals, value = word[2:].partition("=")
        if not equals:
            following = words[index + 1] if index + 1 < len(words) else "--"
            value = "True" if following.startswith("--") else following
        found[name.replace("_", "-")] = value
    return found


speculation_in = Spellings(locate, _is_speculative).speculation_in
"""Returns how a command or its environment asks for speculation, as written there, or None."""
