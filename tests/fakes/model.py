"""The fake server's language model: a pure function of the prompt and the position, one token a word."""

import math
import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from tests.fakes.script import Script

BOS, EOS, TURN, ANSWER = 1, 2, 3, 4
"""ANSWER ends every chat prompt: what follows it in a scored sequence is output."""

_FIRST_WORD = 1000
_OTHER_WORDS = 5000
_OTHERS = 40_000
_SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ha", "ke", "li", "mo", "nu", "pa", "re", "si", "to", "vu", "za")
VOCABULARY = tuple(a + b + c for a in _SYLLABLES for b in _SYLLABLES for c in _SYLLABLES[:4])


def encode(text: str) -> list[int]:
    """Return the token ids of a text, one a word."""
    return [_token(word) for word in text.split()]


def _token(word: str) -> int:
    if word in _INDEX:
        return _FIRST_WORD + _INDEX[word]
    return _OTHER_WORDS + zlib.crc32(word.encode()) % _OTHERS


_INDEX = {word: i for i, word in enumerate(VOCABULARY)}


def encode_chat(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the token ids of a conversation as the chat template would write it."""
    ids = [BOS]
    for message in messages:
        ids += [TURN, *encode(str(message.get("role", ""))), *encode(str(message.get("content", "")))]
    return [*ids, ANSWER]


class PseudoModel:
    """Writes deterministic pseudo-text, or the scripted answers, and scores what others wrote."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._words: dict[int, str] = {}
        self._answers = {
            tuple(encode(prompt)): [*self._learn(answer), EOS] for prompt, answer in script.answers.items()
        }

    def _learn(self, text: str) -> list[int]:
        ids = encode(text)
        self._words.update(zip(ids, text.split(), strict=True))
        return ids

    def word(self, token: int) -> str:
        """Return how a token is written; the end token and the marks are written as nothing."""
        if _FIRST_WORD <= token < _FIRST_WORD + len(VOCABULARY):
            return VOCABULARY[token - _FIRST_WORD]
        return self._words.get(token, "")

    def text(self, ids: Sequence[int], *, after: int = 0) -> str:
        """Return the text of tokens that follow `after` earlier ones."""
        words = [self.word(token) for token in ids]
        return "".join(f" {w}" if w and (after + i) else w for i, w in enumerate(words))

    def wanted(self, prompt: Sequence[int], position: int) -> int:
        """Return the token the model writes at an output position: position and prompt alone decide."""
        answer = self._answers.get(self._last_message(prompt))
        if answer is not None and position < len(answer):
            return answer[position]
        if answer is None and position == self.script.tokens - 1:
            return EOS
        key = f"{prompt}/{position}".encode()
        return _FIRST_WORD + zlib.crc32(key) % len(VOCABULARY)

    def _last_message(self, prompt: Sequence[int]) -> tuple[int, ...]:
        ids = list(prompt)
        if TURN not in ids:
            return tuple(ids)
        start = len(ids) - 1 - ids[::-1].index(TURN)
        return tuple(ids[start + 2 : -1])  # without the turn mark, the role and the answer mark

    def write(self, prompt: Sequence[int], most: int, *, ignore_eos: bool) -> list[int]:
        """Return the output of a request: up to `most` tokens, the end token included where it is reached."""
        out: list[int] = []
        prompt = list(prompt)
        while len(out) < most:
            token = self.wanted(prompt, len(out))
            out.append(token if token == EOS else self._spoil(token, len(out)))
            if token == EOS and not ignore_eos:
                break
        return out

    def _spoil(self, token: int, position: int) -> int:
        script = self.script
        if script.corrupt_every and (position + 1) % script.corrupt_every == 0:
            return corrupted(token)
        if script.tie_every and (position + 1) % script.tie_every == 0:
            return tied(token)
        return token

    def score(self, ids: Sequence[int]) -> list[dict[str, Any] | None]:
        """Return vLLM's prompt_logprobs (with one top token) of a sequence that ends in an output."""
        start = len(ids) - list(ids)[::-1].index(ANSWER) if ANSWER in ids else len(ids)
        prompt = list(ids[:start])
        out: list[dict[str, Any] | None] = [None]
        for i, token in enumerate(ids[1:], start=1):
            if i < start:
                out.append(self._entry(token, token, 0.0))
            else:
                out.append(self._entry(token, *self._gap(prompt, i - start, token)))
        return out

    def _gap(self, prompt: list[int], position: int, written: int) -> tuple[int, float]:
        script, wanted = self.script, self.wanted(prompt, position)
        if written == wanted:
            noisy = script.noise_every and (position + 1) % script.noise_every == 0
            return (tied(wanted), script.noise_gap) if noisy else (wanted, 0.0)
        return wanted, script.tie_gap if written == tied(wanted) else script.corrupt_gap

    def _entry(self, written: int, top: int, gap: float) -> dict[str, Any]:
        best = -0.125
        entry = {str(written): {"logprob": best - gap, "rank": 1 + (gap > 0), "decoded_token": self.word(written)}}
        if top != written:
            entry[str(top)] = {"logprob": best, "rank": 1, "decoded_token": self.word(top)}
        return entry


def corrupted(token: int) -> int:
    """Return the token that a corrupt variant writes in another's place."""
    return _FIRST_WORD + (token + 1 - _FIRST_WORD) % len(VOCABULARY)


def tied(token: int) -> int:
    """Return the token at the other side of a near tie."""
    return _FIRST_WORD + (token + 7 - _FIRST_WORD) % len(VOCABULARY)


def pace(script: Script, number: int) -> float:
    """Return the milliseconds a token takes in one request, jitter included."""
    if not script.jitter:
        return script.token_ms
    noise = random.Random(f"{script.seed}/{number}").gauss(0.0, script.jitter)
    return script.token_ms * math.exp(noise)
