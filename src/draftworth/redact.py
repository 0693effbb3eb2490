"""Keeping secrets out of records, plans and reports.

Where it is not clear what is secret, more is hidden: a command that shows too little is a nuisance, a key is a leak.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftworth.trials.config import TrialConfig
    from draftworth.trials.endpoints.config import EndpointsTrial

HIDDEN = "(hidden)"

_SHORTEST_VALUE = 6
_SHORTEST_CUT = 4
_SCHEMES = frozenset({"bearer", "basic", "digest", "apikey"})
_PUBLIC = frozenset({"accept-encoding"})

_SECRET = re.compile(r"(?i)(key|token(?!s|ize)|secret|passw|auth|cred|cookie)")
_CERTAIN = re.compile(r"(?i)secret|passw|auth|cred|cookie|api[-_.]?key")
# What makes the name of a key or token a number or a setting: --long-prefill-token-threshold, eos_token_id.
_HARMLESS = re.compile(r"(?i)(?:^|[-_.])(?:max|num|per|threshold|tokenizer)(?:[-_.]|$)|token[-_.]?ids?$")
_PROBLEM = re.compile(r"(?i)(?:error|exception|warning)$")
_VARIABLE = re.compile(r"[a-z][-_]env$")  # api_key_env, --api-key-env: the name of a variable
_URL_SECRET = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,20}://)[^/\s@'\"]+@")
_SHAPES = (
    (re.compile(r"(?i)\b(bearer|basic)(\s+)(?!\(hidden\))[\w.~+/=-]{6,}"), r"\1\2" + HIDDEN),
    (re.compile(r"\bhf_(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{6,}|\bhf_[a-z]{16,}"), HIDDEN),
    (re.compile(r"\bsk-[A-Za-z0-9_-]{8,}"), HIDDEN),
)
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_ASSIGNED = re.compile(r"([\w.-]+)=")
_SCRIPT_NEXT = re.compile(r"-[a-z]*c")
_WORD = re.compile(r"\(hidden\)|[^\s'\",\[\](){}]+")
_NAME = re.compile(r"(?<![\w.-])(?P<name>[\w.-]+)(?P<quote>\\?['\"])?\s*(?P<sign>[:=])\s*")
_QUOTED = r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\""
# A list, or what a shell takes for one word; a quote that is not closed hides the rest.
_VALUE = re.compile(
    rf"\(hidden\)|\[(?:{_QUOTED}|[^\]'\"])*(?:\]|['\"].*)?|(?:{_QUOTED}|[^\s'\"])+(?:['\"].*)?|['\"].*", re.DOTALL
)
_NOTHING = re.compile(r"(?:None|null|True|False|\[\]|''|\"\")(?=[\s,;)}\]'\"]|$)")
_BARE = frozenset({"key", "keys", "token"})  # `token: …` in a sentence
_WHOLE_LINE = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie"})


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return variables with the values of those that may be secrets hidden."""
    return {name: HIDDEN if _SECRET.search(name) else text(value) for name, value in env.items()}


def command(argv: Sequence[str]) -> tuple[str, ...]:
    """Return an argv with the values of secret flags and variables hidden.

    `--api-key A B` hides every word up to the next flag, `--hf-token=X`, `-e NAME=X` and `--env=NAME=X` what is behind
    the last sign; a word that is itself a command line (`bash -c "…"`) is treated like a line of text.
    """
    shown: list[str] = []
    hiding = False
    before = ""
    for word in argv:
        flag = _FLAG.match(word)
        assigned = _assignment(word)
        script = _SCRIPT_NEXT.fullmatch(before)
        before = word
        if hiding and not flag:
            shown.append(HIDDEN)
            continue
        hiding = flag is not None and flag.group() == word and _is_secret(word)
        if assigned and not script:
            shown.append(assigned + HIDDEN)
        else:
            shown.append(word if hiding else text(word))
    return tuple(shown)


def text(line: str) -> str:
    """Return a line of a log or a script with everything that may be a secret hidden.

    Hidden are values of names that sound secret (`api_key': ['x']`, `HF_TOKEN=x`, `--api-key=x`), every word behind
    such a flag up to the next flag, credentials in addresses, `Bearer x`, and what has the shape of a known token.
    """
    line = _URL_SECRET.sub(r"\1" + HIDDEN + "@", line)
    for shape, instead in _SHAPES:
        line = shape.sub(instead, line)
    return _without_flag_values(_without_named_values(line))


def values(line: str, headers: Mapping[str, str]) -> str:
    """Return a line without the values of headers that were sent: a server may say in an error what it was sent.

    Values of less than 6 characters are left. A value that was cut off, as in `sk-abcd…`, is hidden too.

    Args:
        line: what is stored or printed.
        headers: name to value; of `Bearer x`, x alone is hidden as well.
    """
    found = {value for name, value in headers.items() if name.lower() not in _PUBLIC}
    found |= {key for scheme, _, key in (value.partition(" ") for value in found) if scheme.lower() in _SCHEMES}
    found |= {" ".join(value.split()) for value in found} | {json.dumps(value)[1:-1] for value in found}
    for value in sorted(found, key=len, reverse=True):
        if len(value) < _SHORTEST_VALUE:
            continue
        line = line.replace(value, HIDDEN)
        if "…" in line:
            line = _without_cut(line, value)
    return line


def _without_cut(line: str, value: str) -> str:
    """Hide the beginning of a value in front of an ellipsis."""
    pieces = line.split("…")
    for number, piece in enumerate(pieces[:-1]):
        for length in range(min(len(value), len(piece)), _SHORTEST_CUT - 1, -1):
            if piece.endswith(value[:length]):
                pieces[number] = piece[:-length] + HIDDEN
                break
    return "…".join(pieces)


def _assignment(word: str) -> str:
    """Return the front of `NAME=x`, `--name=x`, `--env=NAME=x` up to the sign behind a secret name, else nothing.

    In an argv everything behind it is the value, spaces too.
    """
    at = 0
    while match := _ASSIGNED.match(word, at):
        at = match.end()
        if _is_secret(match[1]):
            return word[:at]
    return ""


def _is_secret(name: str) -> bool:
    if not _SECRET.search(name) or _PROBLEM.search(name) or _VARIABLE.search(name):
        return False
    # Environment variables are written in capitals, and none that sounds secret is worth showing.
    return name.isupper() or bool(_CERTAIN.search(name)) or not _HARMLESS.search(name)


def _without_named_values(line: str) -> str:
    """Hide x in `name=x`, `'name': x`, `Name: x`."""
    out, at = "", 0
    for match in _NAME.finditer(line):
        name, sign = match["name"], match["sign"]
        if match.start() < at or not _is_secret(name) or _NOTHING.match(line, match.end()):
            continue
        # `argument --api-key: expected …` is an engine's message, not a value.
        if sign == ":" and not match["quote"] and (name.startswith("-") or name.lower() in _BARE):
            continue
        value = _VALUE.match(line, match.end())
        if value is None:
            continue
        out += line[at : match.end()] + HIDDEN
        at = len(line) if name.lower() in _WHOLE_LINE and sign == ":" else value.end()
    return out + line[at:]


def _without_flag_values(line: str) -> str:
    """Hide the words behind a secret flag up to the next flag, whatever quotes and brackets are between them."""
    hiding = False

    def shown(match: re.Match[str]) -> str:
        nonlocal hiding
        word = match.group()
        flag = _FLAG.match(word)
        if flag:
            hiding = flag.group() == word and _is_secret(word)
            return word
        return HIDDEN if hiding else word

    return _WORD.sub(shown, line)


def config(trial: "TrialConfig") -> dict[str, Any]:
    """Return a trial's file with the values of secret variables hidden."""
    data: dict[str, Any] = trial.model_dump(mode="json")
    data["service"]["env"] = environment(trial.service.env)
    data["service"]["command"] = list(command(trial.service.command))
    for arm, shown in zip(trial.arms, data["arms"], strict=True):
        shown["env"] = environment(arm.env)
        shown["args"] = list(command(arm.args))
        shown["speculative_config"] = _nested(arm.speculative_config)
    return data


def endpoints(trial: "EndpointsTrial") -> dict[str, Any]:
    """Return the file of a trial between servers that run already; it names variables and holds no secret."""
    data: dict[str, Any] = trial.model_dump(mode="json")
    return data


def _nested(value: Any, name: str = "") -> Any:
    """Return a JSON value with the strings of secret names hidden."""
    if isinstance(value, Mapping):
        return {key: _nested(inner, key) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_nested(inner, name) for inner in value]
    return HIDDEN if isinstance(value, str) and _is_secret(name) else value
