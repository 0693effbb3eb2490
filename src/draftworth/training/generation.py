"""`{% generation %}`: the spans that a chat template itself marks as the assistant's, in characters.

The tag is transformers' (utils/chat_template_utils.py): what stands between it and `{% endgeneration %}` is an answer.
Here each is wrapped in two characters that no text holds, rendered, and the characters taken out again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

START, END = "\ue000\ue001", "\ue001\ue000"
"""Marks in Unicode's private use area."""


def marked(
    environment: Any,
    source: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Any] | None,
    arguments: Mapping[str, Any],
) -> list[tuple[int, int]]:
    """Return the spans that a template marks; empty where it marks none, or a message holds the marks' characters.

    Args:
        environment: jinja's, in which the template is compiled otherwise.
        source: the template.
        messages: what is rendered, without the beginning of a further answer.
        tools: what the assistant may call.
        arguments: special tokens and further arguments.
    """
    if "generation" not in source.replace("add_generation_prompt", ""):
        return []
    from jinja2 import TemplateError, nodes  # noqa: PLC0415 - lazy
    from jinja2.ext import Extension  # noqa: PLC0415 - lazy

    class Marking(Extension):
        """The tag, with a mark on either side of its inside."""

        tags = {"generation"}
        priority = 200  # jinja takes the last one of a tag: behind the one that leaves its inside as it is

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            inside = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            marks = [nodes.Output([nodes.TemplateData(text)], lineno=line) for text in (START, END)]
            return nodes.Scope([marks[0], *inside, marks[1]], lineno=line)

    try:
        text = (
            environment.overlay(extensions=[Marking])
            .from_string(source)
            .render(
                messages=list(messages), tools=list(tools) if tools else None, add_generation_prompt=False, **arguments
            )
        )
    except (TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
        return []
    return spans_of(text)


def spans_of(text: str) -> list[tuple[int, int]]:
    """Return the spans between marks, in characters of the text without them; empty where marks are not in pairs."""
    found: list[tuple[int, int]] = []
    length = 0
    for number, piece in enumerate(text.split(START)):
        if number == 0:
            length += len(piece)
            continue
        inside, mark, behind = piece.partition(END)
        if not mark or END in behind:
            return []
        found.append((length, length + len(inside)))
        length += len(inside) + len(behind)
    return found
