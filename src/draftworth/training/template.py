"""Conversations as samples, by the target's own chat template: exactly the tokens that the target would have written.

An answer's span is found by rendering: what the server is sent (all messages before, and the template's beginning of an
answer) must be how the same messages with the answer begin; the rest, up to the token that ends the turn, is it.
Where the whole conversation does not begin with that text (templates that drop earlier reasoning), the turn becomes a
sample of its own: the target never saw it in another context. Where a server is sent something else than how the
answered conversation begins, `{% generation %}` of the template is the second way, marks of reasoning are the third.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftworth.errors import UsageError
from draftworth.traces.columns import BadRow
from draftworth.traces.tokenizing import NO_TEMPLATE, Tokenizer
from draftworth.training import thinking
from draftworth.training.generation import marked
from draftworth.training.samples import Sample
from draftworth.training.sources.base import ASSISTANT, Conversation, Ids

NO_PREFIX = "turns left out: what a server is sent is not how the template writes the answered conversation"
OPENED = "answers learned without the beginning of reasoning that their prompts end in"
OWN_SAMPLE = "turns in a sample of their own: the template writes them otherwise once the conversation goes on"
REFUSED = "turns left out: the chat template refuses the messages"
MERGED = "spans moved by a token: the tokenizer joins an answer's beginning with what is in front of it"
SCAFFOLD = "empty reasoning marks, not learned"
NO_END = "answers without the token that ends a turn"
DROPPED = "answers whose reasoning the template leaves out"
_CONFIGS = ("generation_config.json", "config.json")
_TEMPLATE = "chat_template.jinja"
_LONGEST = 120
_SCAFFOLD = 64
"""Tokens at an answer's beginning in which an empty scaffold ends."""


@dataclass(slots=True)
class _Text:
    """A rendered conversation and the spans of its answers, in characters."""

    text: str
    spans: list[tuple[int, int]] = field(default_factory=list)

    def pieces(self) -> list[str]:
        """Return what is encoded: the whole, and what is in front of each end of a span that lies inside."""
        return [self.text, *(self.text[:at] for span in self.spans for at in span if at < len(self.text))]


class ChatTemplate(Tokenizer):
    """A target's tokenizer and chat template, which turn conversations into samples.

    Args:
        folder: the target's.
        arguments: further arguments of the template.
        learn_thinking: whether reasoning is learned.

    Attributes:
        notes: what happened how often; see the module's constants.

    Raises:
        UsageError: there is no tokenizer, or it or the template is damaged.
    """

    def __init__(self, folder: Path, arguments: Mapping[str, Any], *, learn_thinking: bool) -> None:
        super().__init__(folder)
        self._arguments = dict(arguments)
        self._learn_thinking = learn_thinking
        self._ends, self._specials = self._ending_ids(), self._special_ids()
        self.notes: Counter[str] = Counter()

    def check(self) -> None:
        """Make sure that there is a template.

        Raises:
            UsageError: there is none.
        """
        if not self._source():
            raise UsageError(f"{self._folder}: {NO_TEMPLATE}; conversations of messages need one")

    def tail(self) -> int:
        """Return how many tokens of the template at a prompt's end begin an answer; 0 where there is no template."""
        asked = ({"role": "user", "content": "x"},)
        try:
            short, long = self.render(asked, None, begin=False), self.render(asked, None, begin=True)
        except BadRow:
            return 0
        return max(0, len(self._ids(long, special=False)) - len(self._ids(short, special=False)))

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, *, begin: bool) -> str:
        """Return messages as the template writes them.

        Args:
            messages: see `sources.base.message_of`.
            tools: what the assistant may call.
            begin: whether the beginning of an answer is written behind them.

        Raises:
            BadRow: there is no template, or it fails on these messages.
        """
        if self._template is None:
            self._template = self._compiled()
        import jinja2  # noqa: PLC0415 - lazy

        try:
            return str(
                self._template.render(
                    messages=[_named_reasoning(one) for one in messages],
                    tools=list(tools) if tools else None,
                    add_generation_prompt=begin,
                    **{**self._special, **self._arguments},
                )
            )
        # A template is a program of its author's: it may fail in any of these ways on what it does not expect.
        except (jinja2.TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            raise BadRow(f"{REFUSED} ({' '.join(str(error).split())[:_LONGEST]})") from None

    def samples(self, conversation: Conversation, learned: Sequence[int] | None = None) -> list[Sample]:
        """Return a conversation of messages as samples; see `batch`."""
        return self.batch([(conversation, learned)])[0]

    def batch(self, asked: Sequence[tuple[Conversation, Sequence[int] | None]]) -> list[list[Sample]]:
        """Return conversations of messages as samples.

        Args:
            asked: each with the positions of the answers that are learned, None for all of them.

        Returns:
            Of each conversation mostly one sample; none where no answer can be learned. `notes` says why.
        """
        rendered = [self._texts(one, learned) for one, learned in asked]
        texts = [text for one in rendered for made in one for text in made.pieces()]
        encoded = iter(self._backend.encode_batch(texts, add_special_tokens=False))  # on all cores
        return [[self._sample(made, encoded) for made in one] for one in rendered]

    def _texts(self, conversation: Conversation, learned: Sequence[int] | None) -> list[_Text]:
        """Return a conversation rendered, as few texts as hold every answer in its own context."""
        made: list[_Text] = []
        answers = [at for at, one in enumerate(conversation.messages) if one["role"] == ASSISTANT]
        for at in reversed(answers if learned is None else learned):
            try:
                whole, start, end = self._answer(conversation, at)
            except BadRow as reason:
                self.notes[str(reason)] += 1
                continue
            home = next((one for one in made if one.text.startswith(whole)), None)
            if home is None:
                if made:
                    self.notes[OWN_SAMPLE] += 1
                home = _Text(whole)
                made.append(home)
            home.spans.append((start, end))
        return made[::-1]

    def left_out(self, ids: Ids) -> int:
        """Return how many tokens at the beginning of a recorded answer are not learned: scaffolds, or all reasoning."""
        if not self._learn_thinking and ids.thinking >= 0:
            return ids.thinking
        skipped = thinking.scaffold(self.decode(ids.output[:_SCAFFOLD]))
        if skipped:
            self.notes[SCAFFOLD] += 1
        if not self._learn_thinking:
            skipped = max(skipped, thinking.reasoning(self.decode(ids.output)))
        return self._tokens_of(ids.output, skipped) if skipped else 0

    def decode(self, ids: Sequence[int] | NDArray[np.int32]) -> str:
        """Return the text of ids, special tokens by their names."""
        return str(self._backend.decode([int(one) for one in ids], skip_special_tokens=False))

    def _tokens_of(self, ids: NDArray[np.int32], characters: int) -> int:
        """Return the fewest tokens whose text has so many characters."""
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            if len(self.decode(ids[:middle])) < characters:
                low = middle + 1
            else:
                high = middle
        return low

    def _answer(self, conversation: Conversation, at: int) -> tuple[str, int, int]:
        """Return the text up to an answer's end, and the span of what is learned of the answer, in characters."""
        whole, start, end = self._span(conversation.messages, at, conversation.tools)
        written = whole[start:end]
        skipped = thinking.scaffold(written)
        if skipped:
            self.notes[SCAFFOLD] += 1
        said = str(conversation.messages[at].get("reasoning_content") or "").strip()
        if said and said not in whole:
            self.notes[DROPPED] += 1
        if not self._learn_thinking:
            skipped = max(skipped, thinking.reasoning(written))
        return whole, start + skipped, end

    def _span(
        self, messages: Sequence[Mapping[str, Any]], at: int, tools: Sequence[Any] | None
    ) -> tuple[str, int, int]:
        """Return the text up to an answer's end, and where the answer is in it."""
        whole = self.render(messages[: at + 1], tools, begin=False)
        prompt = self.render(messages[:at], tools, begin=True)
        if whole.startswith(prompt):
            return whole, len(prompt), len(whole)
        arguments = {**self._special, **self._arguments}
        spans = marked(self._template.environment, self._source(), messages[: at + 1], tools, arguments)
        if spans:
            return whole, *spans[-1]
        said = str(messages[at].get("content") or "").strip()
        begins = whole.rfind(said) if said else -1
        if begins >= 0 and thinking.closed(prompt):
            # The history has no marks of reasoning, or others: what the target wrote stood behind the prompt's own.
            return prompt + whole[begins:], len(prompt), len(prompt) + len(whole) - begins
        opened = thinking.opened(prompt)
        if opened is not None and whole.startswith(prompt[:opened]):
            self.notes[OPENED] += 1
            return whole, opened, len(whole)
        raise BadRow(NO_PREFIX)

    def _source(self) -> str:
        """Return the template's text, from where `Tokenizer` compiles it."""
        path = self._folder / _TEMPLATE
        if path.is_file():
            return path.read_text(encoding="utf-8")
        found = self._config().get("chat_template")
        if isinstance(found, list):
            named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
            found = named.get("default")
        return found if isinstance(found, str) else ""

    def _sample(self, one: _Text, encoded: Iterator[Any]) -> Sample:
        """Return the tokens of a rendered conversation, and which of them its answers are.

        Args:
            one: the conversation.
            encoded: of each of its pieces.
        """
        whole = next(encoded)
        ids = np.array(whole.ids, np.int32)
        mask = np.zeros(len(ids), np.uint8)
        for span in one.spans:
            first, last = (
                self._boundary(ids, whole, at, next(encoded)) if at < len(one.text) else len(ids) for at in span
            )
            mask[first : self._end_of_turn(ids, first, last)] = 1
        return Sample(ids, mask, exact=False)

    def _boundary(self, ids: NDArray[np.int32], whole: Any, at: int, before: Any) -> int:
        """Return the first token that lies wholly behind a character, given the tokens of the text in front of it."""
        front = np.array(before.ids, np.int32)
        if np.array_equal(ids[: len(front)], front):
            return len(front)
        self.notes[MERGED] += 1
        size = min(len(ids), len(front))
        differ = np.flatnonzero(ids[:size] != front[:size])
        token = int(differ[0]) if len(differ) else size
        while token < len(ids) and whole.offsets[token][0] < at:
            token += 1
        return token

    def _end_of_turn(self, ids: NDArray[np.int32], first: int, last: int) -> int:
        """Return where an answer ends: behind the token that ends the turn, before what only the template writes."""
        named = np.flatnonzero(np.isin(ids[first:last], self._ends))
        if len(named):
            return first + int(named[0]) + 1
        special = np.flatnonzero(np.isin(ids[first:last], self._specials))
        end = first + int(special[-1]) + 1 if len(special) else last
        if len(special) and not self.decode(ids[end:last]).strip():
            return end
        if last < len(ids) and ids[last] in self._ends:
            return last + 1  # where the next speaker's mark is what ends a turn
        self.notes[NO_END] += 1
        return last

    def _special_ids(self) -> NDArray[np.int32]:
        added: Mapping[int, Any] = self._backend.get_added_tokens_decoder()
        return np.array(sorted(number for number, token in added.items() if token.special), np.int32)

    def _ending_ids(self) -> NDArray[np.int32]:
        """Return the ids that end a turn, as generation_config.json, config.json and tokenizer_config.json say."""
        found = {one for name in _CONFIGS for one in _named_ends(self._folder / name)}
        token = self._config().get("eos_token")
        token = token.get("content") if isinstance(token, dict) else token
        number = self._backend.token_to_id(token) if isinstance(token, str) else None
        return np.array(sorted(found if number is None else found | {number}), np.int32)


def _named_reasoning(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message with its reasoning under every name by which templates look for it."""
    said = message.get("reasoning_content") or message.get("thinking")
    return message if not said else {**message, "reasoning_content": said, "reasoning": said, "thinking": said}


def _named_ends(path: Path) -> Iterator[int]:
    try:
        told = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
    except (OSError, ValueError, AttributeError):
        return
    yield from (one for one in (told if isinstance(told, list) else [told]) if isinstance(one, int))
