"""Does a server that extracts states sample from the target's distribution? Asked at two temperatures.

Extraction is speculation of one token in vLLM, so its answers come through the rejection sampler. vLLM 0.32's CPU build
gives that sampler temperatures it never wrote (vllm-project/vllm issue 55005): answers at a temperature above 0 come
from another distribution, which no check of a state would notice. Next to 0 an answer is the greedy one; at 2
two seeds give two answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from draftworth.errors import RefusedError
from draftworth.training.states_vllm import discard, named_file

_COLD, _HOT = 0.01, 2.0
"""vLLM takes no temperature above 2."""
_TOKENS = 3
"""Of an answer: the first comes from the prompt's step, which verifies nothing, and few have a near tie among them."""
_PROMPTS = tuple([base + at for at in range(6)] for base in (1, 11, 21, 31, 41, 51))
_ENOUGH = 0.5
"""Share of the prompts that have to pass: near ties may turn some, a broken sampler all."""

Post = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


async def check_sampling(post: Post, url: str, model: str) -> None:
    """Raise unless a server's sampled answers follow the temperature, with 24 requests of three tokens.

    Args:
        post: sends a body to its `/v1/completions`.
        url: the server's, for what is said.
        model: the name it serves the target by.

    Raises:
        RefusedError: they do not.
        MeasureError: the server does not answer.
    """

    async def answer(prompt: list[int], temperature: float, seed: int) -> list[int]:
        body = {"model": model, "prompt": prompt, "max_tokens": _TOKENS, "temperature": temperature, "seed": seed}
        said = await post({**body, "ignore_eos": True, "return_token_ids": True})
        if (file := named_file(said)) is not None:
            await asyncio.to_thread(discard, file)
        made = (said.get("choices") or [{}])[0].get("token_ids")
        return [int(one) for one in made[1:_TOKENS]] if isinstance(made, list) else []

    async def every(temperature: float, seed: int) -> list[list[int]]:
        return list(await asyncio.gather(*(answer(prompt, temperature, seed) for prompt in _PROMPTS)))

    greedy, cold, hot, other = [await every(*one) for one in ((0.0, 1), (_COLD, 2), (_HOT, 3), (_HOT, 4))]
    same = sum(one == two for one, two in zip(greedy, cold, strict=True)) / len(_PROMPTS)
    apart = sum(one != two for one, two in zip(hot, other, strict=True)) / len(_PROMPTS)
    if same < _ENOUGH:
        why = f"at temperature {_COLD:g} {1 - same:.0%} of its answers are not the greedy ones"
    elif apart < _ENOUGH:
        why = f"at temperature {_HOT:g} {1 - apart:.0%} of its answers are the same for two seeds"
    else:
        return
    raise RefusedError(
        f"{url} does not sample from the target's distribution while it extracts states: {why} (vLLM 0.32's CPU build: "
        "vllm-project/vllm issue 55005); set data.regenerate.temperature = 0, or leave out data.regenerate.states and "
        "let a server without extraction answer"
    )
