"""Text to token ids, with a model's own tokenizer and chat template: for records that hold text only.

Such ids are an approximation and are marked so: a server may have generated a text by other tokens than those that a
tokenizer makes of it, the token that ends an answer is not in its text, and a template may depend on what was not
recorded. The files are those of a Hugging Face model folder: `tokenizer.json`, and the template from
`chat_template.jinja` or `tokenizer_config.json`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftworth.errors import UsageError
from draftworth.traces.columns import BadRow

TOKENIZER = "tokenizer.json"
_TEMPLATE, _CONFIG = "chat_template.jinja", "tokenizer_config.json"
NO_TEMPLATE = "messages, and the tokenizer has no chat template"
TEMPLATE_FAILED = "the chat template refuses the messages"


def tokenizer_hash(path: Path) -> str:
    """Return what names a tokenizer: `sha256:` and the digest of its tokenizer.json.

    Args:
        path: the file, or a model's folder.

    Raises:
        UsageError: there is none.
    """
    file = _file(path)
    try:
        return f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error


class Tokenizer:
    """A model's tokenizer and chat template.

    Args:
        path: a model's folder, or its tokenizer.json.

    Attributes:
        hash: see `tokenizer_hash`.
        vocabulary: how many ids there are, added tokens too.

    Raises:
        UsageError: there is no such file, it is damaged, or the package that reads it is not installed.
    """

    def __init__(self, path: Path) -> None:
        try:
            from tokenizers import Tokenizer as Backend  # noqa: PLC0415 - lazy and optional
        except ImportError as error:
            raise UsageError(
                "turning text into token ids needs the package tokenizers: pip install tokenizers"
            ) from error
        file = _file(path)
        self.hash = tokenizer_hash(file)
        try:
            self._backend = Backend.from_file(str(file))
        except Exception as error:  # the backend raises plain Exception
            raise UsageError(f"{file}: not a tokenizer: {' '.join(str(error).split())[:200]}") from error
        self._backend.no_truncation()
        self._backend.no_padding()
        self.vocabulary = int(self._backend.get_vocab_size(with_added_tokens=True))
        self._folder = file.parent
        self._template: Any = None
        self._special: dict[str, str] = {}

    def prompt(self, text: str) -> NDArray[np.int32]:
        """Return the ids of a prompt that is sent as text, with the special tokens that begin one."""
        return self._ids(text, special=True)

    def output(self, text: str) -> NDArray[np.int32]:
        """Return the ids of a generated text; names of special tokens in it are those tokens."""
        return self._ids(text, special=False)

    def chat(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None) -> NDArray[np.int32]:
        """Return the ids of messages, rendered by the template up to where the answer begins.

        Raises:
            BadRow: there is no template, or it fails on these messages.
        """
        if self._template is None:
            self._template = self._compiled()
        import jinja2  # noqa: PLC0415 - lazy

        try:
            text = self._template.render(
                messages=[_plain(message) for message in messages],
                tools=tools or None,
                add_generation_prompt=True,
                **self._special,
            )
        # A template is a program of its author's: it may fail in any of these ways on what it does not expect.
        except (jinja2.TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
            raise BadRow(TEMPLATE_FAILED) from None
        return self._ids(text, special=False)

    def _ids(self, text: str, *, special: bool) -> NDArray[np.int32]:
        try:
            found = self._backend.encode(text, add_special_tokens=special)
        except (UnicodeEncodeError, TypeError):
            raise BadRow("the text has half of a surrogate pair") from None
        return np.array(found.ids, np.int32)

    def _compiled(self) -> Any:
        config = self._config()
        for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
            token = config.get(name)
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str):
                self._special[name] = token
        path = self._folder / _TEMPLATE
        source = path.read_text(encoding="utf-8") if path.is_file() else _default_template(config.get("chat_template"))
        if not source:
            raise BadRow(NO_TEMPLATE)
        from jinja2 import TemplateError  # noqa: PLC0415 - lazy

        try:
            return _environment().from_string(source)
        except TemplateError as error:
            raise UsageError(f"the chat template in {self._folder} cannot be read: {error}") from error

    def _config(self) -> dict[str, Any]:
        try:
            found = json.loads((self._folder / _CONFIG).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise UsageError(f"{self._folder / _CONFIG}: damaged: {error}") from error
        return found if isinstance(found, dict) else {}


def _file(path: Path) -> Path:
    file = path / TOKENIZER if path.is_dir() else path
    if not file.is_file():
        raise UsageError(f"{file}: no such file; a tokenizer is a model's folder, or its {TOKENIZER}")
    return file


def _default_template(found: object) -> str:
    """Return the template: one text, or of several that have names the one called `default`."""
    if isinstance(found, list):
        named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else ""


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as templates expect it: text parts of a content joined, arguments of tool calls decoded."""
    made = dict(message)
    content = made.get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        if not all(isinstance(text, str) for text in texts):
            raise BadRow("a message has a part that is no text (an image, a sound)")
        made["content"] = "\n".join(str(text) for text in texts)
    elif content is None:
        made["content"] = ""
    calls = made.get("tool_calls")
    if isinstance(calls, list):
        made["tool_calls"] = [_decoded(call) for call in calls]
    return made


def _decoded(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def _environment() -> Any:
    """Return what renders templates: as transformers does, in a sandbox, since a template is foreign code."""
    from jinja2 import nodes  # noqa: PLC0415 - lazy
    from jinja2.exceptions import TemplateError  # noqa: PLC0415 - lazy
    from jinja2.ext import Extension  # noqa: PLC0415 - lazy
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415 - lazy

    class Generation(Extension):
        """`{% generation %}`, which marks an assistant's part for training: its inside as it is."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:  # noqa: FBT001, FBT002 - as templates call it
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.now(UTC).strftime(form)
    return made
