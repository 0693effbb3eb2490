"""Prompts as token ids: natural text cut into pieces and joined in seeded orders, as long as they are asked for.

A probe needs lengths that are exact, so it sends ids. They are those of the built-in texts in the served model's own
tokenizer; random ids would send a mixture of experts elsewhere than text does.
"""

import random
from collections.abc import Sequence

from draftworth.bench.base import Prompt, Sampling, Target
from draftworth.bench.client import run_request
from draftworth.bench.http import Client
from draftworth.bench.loop import run_on_loop
from draftworth.bench.probes import new_session, post_json
from draftworth.errors import MeasureError
from draftworth.workloads import builtin

_PIECE = 24
_ASKED = 6
"""Texts the server is sent where it has no /tokenize."""
_TIMEOUT_S = 20.0
_RANDOM = range(1000, 20_000)
"""Ids that every common vocabulary has as ordinary tokens."""

RANDOM_IDS = (
    "the server tells no token ids: prompts are random ids, which may send a mixture of experts elsewhere than text"
)


class Passages:
    """Natural text as ids, and prompts made of it.

    Attributes:
        natural: whether the ids are those of text.
    """

    def __init__(self, ids: Sequence[int], *, natural: bool, seed: int = 0) -> None:
        """Take the ids of some text.

        Args:
            ids: in the text's order.
            natural: kept.
            seed: of every order that is drawn.
        """
        self._ids = tuple(ids)
        self.natural = natural
        self._seed = seed
        # Special tokens stand where a text begins or ends; what occurs in the midst is ordinary.
        self._firsts = list(dict.fromkeys(self._ids))
        random.Random(seed).shuffle(self._firsts)  # noqa: S311 - no secret
        self._next = 0

    def prompt(self, name: str, length: int) -> tuple[int, ...]:
        """Return a prompt of exactly so many ids; the same name gives the same ids, another name others."""
        if length < 1:
            return ()
        draw = random.Random(f"{self._seed}/{name}")  # noqa: S311 - no secret
        found: list[int] = []
        while len(found) < length:
            start = draw.randrange(max(1, len(self._ids) - _PIECE))
            found += self._ids[start : start + _PIECE]
        return tuple(found[:length])

    def fresh(self, length: int) -> tuple[int, ...]:
        """Return ids that begin with another token each time, so that no prefix cache has any of them."""
        first = self._firsts[self._next % len(self._firsts)]
        self._next += 1
        return (first, *self.prompt(f"fresh {self._next}", length - 1))


def passages(target: Target, *, seed: int = 0) -> Passages:
    """Return the built-in texts as ids of the served model.

    `/tokenize` is asked (vLLM, SGLang and llama.cpp have it); where it is missing, a few texts are sent as prompts with
    one token out, for the server to return their ids (`return_token_ids`). Where it does neither, ids are random.

    Args:
        target: the server.
        seed: of the prompts made later.

    Raises:
        MeasureError: the server does not answer at all.
    """
    texts = [str(prompt.messages[-1]["content"]) for prompt in builtin.prompts()]
    ids = run_on_loop(lambda: _tokenized(target, texts))
    if not ids:
        ids = run_on_loop(lambda: _returned(target, sorted(texts, key=len)[-_ASKED:]))
    if len(set(ids)) > _PIECE:
        return Passages(ids, natural=True, seed=seed)
    draw = random.Random(seed)  # noqa: S311 - no secret
    return Passages([draw.choice(_RANDOM) for _ in range(20_000)], natural=False, seed=seed)


async def _tokenized(target: Target, texts: Sequence[str]) -> list[int]:
    found: list[int] = []
    async with new_session(_TIMEOUT_S, access=target.access) as session:
        for text in texts:
            # vLLM and SGLang read `prompt`, llama.cpp reads `content`.
            body = {"model": target.model, "prompt": text, "content": text, "add_special_tokens": False}
            try:
                answer = await post_json(session, target.base_url + "/tokenize", body)
            except MeasureError:
                return []
            ids = answer.get("tokens")
            if not isinstance(ids, list) or not all(isinstance(one, int) for one in ids):
                return []
            found += ids
    return found


async def _returned(target: Target, texts: Sequence[str]) -> list[int]:
    found: list[int] = []
    async with Client(target.base_url, target.access) as client:
        for number, text in enumerate(texts):
            prompt = Prompt(f"text {number}", "probe", ({"role": "user", "content": text},))
            row = await run_request(client, target, prompt, Sampling(max_tokens=1), arm="", block=0, repeat=0)
            if not row.ok:
                raise MeasureError(f"a request of the probe failed: {row.error}")
            if not row.prompt_token_ids:
                return []
            # The marks of the chat template stand at both ends.
            found += list(row.prompt_token_ids)[8:-8]
    return found
