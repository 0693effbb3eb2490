"""OpenTelemetry spans of GenAI calls: OTLP as JSON, a collector's JSON lines, or a Python exporter's spans.

Attributes as in the semantic conventions for generative AI (opentelemetry.io/docs/specs/semconv/gen-ai): messages in
`gen_ai.input.messages`, `gen_ai.output.messages` and `gen_ai.system_instructions`, on the span or on one of its events;
before them `gen_ai.prompt` and `gen_ai.completion`, whole or as `gen_ai.prompt.0.content`. Spans hold text only.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from draftworth.traces.columns import BadRow
from draftworth.traces.imports.base import Found, Recorded, Sample, number_of, object_of, records, text_of
from draftworth.traces.imports.openai import TOOL_CALL

NOT_CAPTURED = "the span has no prompt and answer (capture of message content is off)"
_PREFIX = "gen_ai."
_VALUES = ("stringValue", "intValue", "doubleValue", "boolValue")
_TEXT_PARTS = frozenset({"text", None})


class OTel:
    """Spans, of which those of calls to a model count; others are no requests and are passed over."""

    name = "otel"
    title = "OpenTelemetry spans with gen_ai attributes (OTLP JSON)"

    def fits(self, sample: Sample) -> bool:
        """Return whether the first record holds spans."""
        first = sample.first
        if "resourceSpans" in first:
            return True
        return "attributes" in first and ("context" in first or "spanId" in first or "span_id" in first)

    def read(self, path: Path) -> Iterator[Found]:
        """Yield every call of a model; see `Importer.read`."""
        for where, record in records(path):
            if isinstance(record, BadRow):
                yield where, record
                continue
            for span in _spans(record):
                found = _recorded(span)
                if found is not None:
                    yield where, found


def _spans(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "resourceSpans" not in record:
        yield record
        return
    for resource in _objects(record["resourceSpans"]):
        for scope in _objects(resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans")):
            yield from _objects(scope.get("spans"))


def _objects(value: object) -> Iterable[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else ()


def _recorded(span: Mapping[str, Any]) -> Recorded | BadRow | None:
    """Return the call, why it is not usable, or None where the span is of something else."""
    attributes = _attributes(span.get("attributes"))
    for event in _objects(span.get("events")):
        attributes = {**_attributes(event.get("attributes")), **attributes}
    if not any(key.startswith(_PREFIX) for key in attributes):
        return None
    operation = attributes.get("gen_ai.operation.name")
    if operation in {"embeddings", "execute_tool", "create_agent", "invoke_agent", "invoke_workflow"}:
        return None
    asked = _messages(attributes, "gen_ai.input.messages", "gen_ai.prompt")
    answered = _messages(attributes, "gen_ai.output.messages", "gen_ai.completion")
    system = _decoded(attributes.get("gen_ai.system_instructions"))
    if isinstance(system, list) and (text := _parts(system)[0]):
        asked = [{"role": "system", "content": text}, *asked]
    if not asked or not answered:
        return BadRow(NOT_CAPTURED)
    answer = answered[0]
    if answer.get("tool_calls") and not answer["content"]:
        return BadRow(TOOL_CALL)
    model = attributes.get("gen_ai.response.model") or attributes.get("gen_ai.request.model")
    context = object_of(span.get("context"))
    name = span.get("spanId") or span.get("span_id") or context.get("span_id")
    plain = len(asked) == 1 and asked[0].get("role") is None
    return Recorded(
        request_id=name if isinstance(name, str) else None,
        prompt_text=asked[0]["content"] if plain else None,
        messages=None if plain else [{**one, "role": one.get("role") or "user"} for one in asked],
        output_text=answer["content"],
        reasoning=answer.get("reasoning", ""),
        temperature=number_of(attributes.get("gen_ai.request.temperature")),
        model=model if isinstance(model, str) else None,
    )


def _attributes(found: object) -> dict[str, Any]:
    """Return attributes by name, from OTLP's list or from an object."""
    if isinstance(found, dict):
        return found
    return {str(one.get("key")): _any(one.get("value")) for one in _objects(found)}


def _any(value: object) -> Any:
    """Return what an OTLP value holds; whole numbers are written as text there."""
    held = object_of(value)
    for kind in _VALUES:
        if kind in held:
            try:
                return int(held[kind]) if kind == "intValue" else held[kind]
            except (TypeError, ValueError):
                return None
    if "arrayValue" in held:
        return [_any(one) for one in _objects(object_of(held["arrayValue"]).get("values"))]
    if "kvlistValue" in held:
        return _attributes(object_of(held["kvlistValue"]).get("values"))
    return None


def _messages(attributes: Mapping[str, Any], new: str, old: str) -> list[dict[str, Any]]:
    """Return messages, each with `content`, and `role` where one is told."""
    found = _decoded(attributes.get(new))
    if found is None:
        found = _decoded(attributes.get(old))
    if found is None:
        found = _numbered(attributes, f"{old}.")
    if isinstance(found, str):
        return [{"content": found}] if found else []
    if isinstance(found, dict):
        found = [found]
    return [_message(one) for one in _objects(found)]


def _message(one: Mapping[str, Any]) -> dict[str, Any]:
    parts = one.get("parts")
    if isinstance(parts, list):
        content, reasoning, calls = _parts(parts)
    else:
        content, reasoning, calls = text_of(one.get("content")) or "", "", bool(one.get("tool_calls"))
    made: dict[str, Any] = {"role": one.get("role"), "content": content, "reasoning": reasoning}
    if calls:
        made["tool_calls"] = one.get("tool_calls") or True
    return {key: value for key, value in made.items() if value or key == "content"}


def _parts(parts: list[Any]) -> tuple[str, str, bool]:
    """Return the text of a message's parts, its reasoning, and whether there are tool calls."""
    texts, reasoning, calls = [], [], False
    for part in _objects(parts):
        content = part.get("content", part.get("text"))
        if part.get("type") == "reasoning" and isinstance(content, str):
            reasoning.append(content)
        elif part.get("type") in _TEXT_PARTS and isinstance(content, str):
            texts.append(content)
        elif part.get("type") == "tool_call_response":
            texts.append(str(part.get("response", part.get("result", ""))))
        else:
            calls = calls or part.get("type") == "tool_call"
    return "".join(texts), "".join(reasoning), calls


def _decoded(value: object) -> Any:
    """Return an attribute's value; JSON in a text is decoded, other text stays."""
    if isinstance(value, str) and value[:1] in {"[", "{"}:
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return value
    return value


def _numbered(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return messages that are spread over attributes: `gen_ai.prompt.0.role`, `gen_ai.prompt.0.content`."""
    made: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        number, _, name = key.removeprefix(prefix).partition(".")
        if key.startswith(prefix) and number.isdecimal() and name:
            made.setdefault(int(number), {})[name] = _decoded(value) if name == "content" else value
    return [made[number] for number in sorted(made)]
