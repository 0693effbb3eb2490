"""Longer prompts for sweeps: natural text in front of each, as much as a length in tokens asks for."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from draftworth.bench.base import Prompt
from draftworth.errors import UsageError
from draftworth.workloads import builtin

_SHARE = 0.02
_FEWEST_TOKENS = 8
_BETWEEN = "\n\n---\n\n"
_MOST_MEASUREMENTS = 60
# How far a cut goes back to end behind a word.
_WORD = 40
# Passages of less would be headings and greetings.
_SHORTEST_PASSAGE = 80


@dataclass(frozen=True, slots=True)
class Lengthened:
    """Prompts with context in front.

    Attributes:
        prompts: in the order given, with the ids given.
        tokens: what each has, in the same order: the contents of its messages, as counted.
        repeated: whether passages were used again because all had been used: contexts of different prompts then have
            text in common, though never their beginning.
        repeated_within: how many prompts have a passage twice in their own context, which a drafter can copy from.
    """

    prompts: tuple[Prompt, ...]
    tokens: tuple[int, ...]
    repeated: bool
    repeated_within: int


def tolerance(tokens: int) -> int:
    """Return how far in tokens a prompt may be from the length asked for: 2 %, at least 8."""
    return max(_FEWEST_TOKENS, int(_SHARE * tokens))


def with_context(
    prompts: Sequence[Prompt],
    tokens: int,
    count_tokens: Callable[[str], int],
    corpus: Sequence[str] | None = None,
    *,
    seed: int = 0,
) -> Lengthened:
    """Return the prompts with reference material in front of the first message of the user.

    The material is made of distinct passages in a seeded order, the last one cut to fit. No passage is used again, in
    any prompt, before all were used. Each context begins with a label of its own, so that a prefix cache shares nothing
    between prompts (a system message in front of it is shared as before). A prompt's own text is never in its context.
    The same arguments give the same prompts.

    Args:
        prompts: with messages; a prompt that already has the length is returned as it is.
        tokens: what the contents of a prompt's messages should have together. What a chat template adds is not
            counted, unless `count_tokens` counts it.
        count_tokens: the tokens of a text; asked about 5 times for each prompt and once for each passage used.
        corpus: passages; None takes the texts of the prompts themselves. The built-in texts are used when these are
            exhausted, before anything is used again.
        seed: the order of the passages.

    Raises:
        UsageError: a prompt is recorded token ids, or is longer than asked for by more than the tolerance (2 %, at
            least 8 tokens), or `count_tokens` makes the length unreachable.
    """
    if tokens < 1:
        raise UsageError(f"a context of {tokens} tokens: ask for at least 1")
    deck = _Deck([_text(prompt) for prompt in prompts] if corpus is None else corpus, seed)
    lengthener = _Lengthener(tokens, count_tokens, deck, seed)
    counts = [lengthener.count(prompt) for prompt in prompts]
    short = [count < tokens - tolerance(tokens) for count in counts]
    # Each prompt's first passage is dealt before any second one, so that they differ as long as there are enough.
    first = [deck.deal(_text(prompt)) if is_short else "" for prompt, is_short in zip(prompts, short, strict=True)]
    made, within = list(prompts), 0
    for i, prompt in enumerate(prompts):
        if short[i]:
            made[i], counts[i], twice = lengthener.lengthen(prompt, first[i])
            within += twice
    return Lengthened(tuple(made), tuple(counts), repeated=deck.repeated, repeated_within=within)


class _Deck:
    """Passages, dealt one after the other; shuffled once, built-in ones last, and dealt again when none is left."""

    def __init__(self, corpus: Sequence[str], seed: int) -> None:
        own = _shuffled(corpus, seed)
        extra = [text for text in _shuffled([_text(prompt) for prompt in builtin.prompts()], seed) if text not in own]
        self._order = [*own, *extra]
        self._left = deque(self._order)
        self.repeated = False

    def deal(self, own: str, taken: Sequence[str] = ()) -> str:
        """Return the next passage for a prompt.

        Args:
            own: the prompt's own text; a passage that is part of it is passed over.
            taken: the passages its context has; one of them comes again only when there is no other at all.

        Raises:
            UsageError: there is no passage but the prompt's own.
        """
        for passed_over in (taken, ()):
            for _ in range(2):
                passage = next((text for text in self._left if text not in own and text not in passed_over), None)
                if passage is not None:
                    self._left.remove(passage)
                    return passage
                self.repeated = True
                self._left = deque(self._order)
        raise UsageError("every passage is part of the prompt itself; give other text as the corpus")


@dataclass(frozen=True, slots=True)
class _Frame:
    """A prompt with a place for context in the first message of the user.

    Attributes:
        prompt: the prompt without context.
        place: which message it goes into.
        before: what stands in front of the context.
        after: what stands behind it.
    """

    prompt: Prompt
    place: int
    before: str
    after: str

    def filled(self, body: str) -> Prompt:
        message = self.prompt.messages[self.place]
        content = f"{self.before}{body}{self.after}{message.get('content') or ''}"
        messages = list(self.prompt.messages)
        messages[self.place] = {**message, "content": content}
        return replace(self.prompt, messages=tuple(messages))


class _Lengthener:
    """Puts context in front of prompts; counts each passage once."""

    def __init__(self, tokens: int, count_tokens: Callable[[str], int], deck: _Deck, seed: int) -> None:
        self._tokens = tokens
        self._off = tolerance(tokens)
        self._count = count_tokens
        self._passages: dict[str, int] = {}
        self._deck = deck
        self._seed = seed

    def count(self, prompt: Prompt) -> int:
        """Return the tokens of a prompt as it is, if context can be put in front of it."""
        if not prompt.messages:
            raise UsageError(
                f"prompt {prompt.id!r} is recorded token ids, which no context can be put in front of; "
                "sweep the context with prompts that are text"
            )
        count = self._count(_text(prompt))
        if count > self._tokens + self._off:
            raise UsageError(
                f"prompt {prompt.id!r} has {count} tokens, more than the context of {self._tokens} asked for; "
                "leave it out or ask for a longer context"
            )
        return count

    def lengthen(self, prompt: Prompt, first: str) -> tuple[Prompt, int, bool]:
        """Return the prompt with context, its tokens, and whether a passage is in it twice."""
        own = _text(prompt)
        frame, empty = self._frame(prompt)
        passages, body = [first], first
        count = self._count(_text(frame.filled(body)))
        while count < self._tokens - self._off:
            if len(passages) > self._tokens:
                raise self._unreachable(prompt)
            missing = self._tokens - count
            while missing > 0:
                passages.append(self._deck.deal(own, passages))
                # A passage that counts for nothing would be dealt for ever.
                missing -= max(1, self._passage(passages[-1]))
            body = _BETWEEN.join(passages)
            count = self._count(_text(frame.filled(body)))
        if count > self._tokens + self._off:
            body, count = self._cut(frame, body, empty, count)
        return frame.filled(body), count, len(set(passages)) < len(passages)

    def _frame(self, prompt: Prompt) -> tuple[_Frame, int]:
        place = next((i for i, message in enumerate(prompt.messages) if message.get("role") == "user"), 0)
        # A number of its own in front: whatever follows, no two prompts begin with the same tokens.
        label = int.from_bytes(blake2b(f"{self._seed}\0{prompt.id}".encode(), digest_size=4).digest(), "big")
        frame = _Frame(prompt, place, f"Reference material {label}:\n\n", "\n\nEnd of the reference material.\n\n")
        count = self._count(_text(frame.filled("")))
        if count > self._tokens - self._off:
            frame = _Frame(prompt, place, f"Note {label % 1000}: ", "\n\n")
            count = self._count(_text(frame.filled("")))
        return frame, count

    def _cut(self, frame: _Frame, body: str, empty: int, count: int) -> tuple[str, int]:
        """Return the beginning of the context that has the right length, ending behind a word where that is near."""
        low, low_count, high, high_count = 0, empty, len(body), count
        for attempt in range(_MOST_MEASUREMENTS):
            if high - low < 2 or high_count <= low_count:  # noqa: PLR2004 - nothing lies between neighbours
                break
            share = (self._tokens - low_count) / (high_count - low_count)
            # A guess by proportion is nearly always right at once; halving bounds the rest.
            guess = low + int((high - low) * (share if attempt < _MOST_MEASUREMENTS // 4 else 0.5))
            at = _word_end(body, min(max(guess, low + 1), high - 1), low)
            kept = body[:at].rstrip().removesuffix(_BETWEEN.strip()).rstrip()
            measured = self._count(_text(frame.filled(kept)))
            if abs(measured - self._tokens) <= self._off:
                return kept, measured
            if measured < self._tokens:
                low, low_count = at, measured
            else:
                high, high_count = at, measured
        raise self._unreachable(frame.prompt)

    def _passage(self, text: str) -> int:
        if text not in self._passages:
            self._passages[text] = self._count(text)
        return self._passages[text]

    def _unreachable(self, prompt: Prompt) -> UsageError:
        return UsageError(
            f"prompt {prompt.id!r} cannot be brought to {self._tokens} tokens: its count does not grow with the text"
        )


def _word_end(body: str, at: int, low: int) -> int:
    space = max(body.rfind(" ", at - _WORD, at), body.rfind("\n", at - _WORD, at))
    return space if space > low else at


def _shuffled(texts: Sequence[str], seed: int) -> list[str]:
    distinct = {text.strip() for text in texts if len(text.strip()) >= _SHORTEST_PASSAGE}
    return sorted(distinct, key=lambda text: (blake2b(f"{seed}\0{text}".encode(), digest_size=8).digest(), text))


def _text(prompt: Prompt) -> str:
    return "\n\n".join(
        content for message in prompt.messages if isinstance(content := message.get("content"), str) and content
    )
