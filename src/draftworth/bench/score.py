"""Scores outputs on a server: how far is each written token from the one the server's model finds most likely?"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from draftworth.bench.base import RequestRow, ScoredOutput, Target
from draftworth.bench.probes import new_session, one_line, post_json
from draftworth.errors import MeasureError

if TYPE_CHECKING:
    import aiohttp

UNBOUNDED = 2**31 - 1
"""What `scored_length_limit` returns where memory sets no limit."""

_BYTES_PER_LOGIT = 3 * 4
_SHORTEST = 64

OnDone = Callable[[int, int], None]
"""Called after each output: how many are scored, how many there are."""


async def score(
    target: Target, rows: Sequence[RequestRow], *, max_positions: int, on_done: OnDone | None = None
) -> list[ScoredOutput]:
    """Score each output position by position, one request at a time.

    Sends the prompt's and the output's token ids as a prompt to `/v1/completions` and asks for `prompt_logprobs` with
    one top token. The gap at a position is the top token's log-probability minus the written one's, in nats; 0 where
    the written token is the most likely. An end token is scored like any other.

    Args:
        target: the server whose model judges.
        rows: requests as measured. Those that failed or lack the ids of prompt or output are left out.
        max_positions: most tokens of prompt and output together; longer outputs are cut there. vLLM must generate a
            token more, so this must be less than its `max_model_len`.
        on_done: told of the progress.

    Returns:
        One entry for each row that could be scored, in order. `gaps` has shape (scored output tokens,).

    Raises:
        MeasureError: the server did not answer or its answer has no log-probabilities; with the server's message.
    """
    usable = [row for row in rows if row.ok and row.prompt_token_ids and row.token_ids]
    scored = []
    async with new_session(target.token_timeout, target.access) as session:
        for row in usable:
            gaps = await _gaps(session, target, row, max_positions)
            scored.append(ScoredOutput(prompt_id=row.prompt_id, arm=row.arm, gaps=gaps, tokens=len(row.token_ids)))
            if on_done is not None:
                on_done(len(scored), len(usable))
    return scored


def score_sync(
    target: Target, rows: Sequence[RequestRow], *, max_positions: int, on_done: OnDone | None = None
) -> list[ScoredOutput]:
    """Do what `score` does, for a synchronous caller."""
    return asyncio.run(score(target, rows, max_positions=max_positions, on_done=on_done))


async def _gaps(
    session: "aiohttp.ClientSession", target: Target, row: RequestRow, max_positions: int
) -> tuple[float, ...]:
    ids = [*row.prompt_token_ids, *row.token_ids][:max_positions]
    start = len(row.prompt_token_ids)
    if len(ids) <= start:
        return ()
    body = {"model": target.model, "prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1}
    try:
        answer = await post_json(session, target.base_url + "/v1/completions", body)
        return gaps_of(answer, ids, start)
    except MeasureError as error:
        raise MeasureError(f"scoring the output of {row.prompt_id!r} ({row.arm}): {error}") from error


def gaps_of(answer: Mapping[str, Any], ids: Sequence[int], start: int) -> tuple[float, ...]:
    """Return the gaps of the tokens from `start` on, in nats, from vLLM's answer to a scoring request.

    `choices[0].prompt_logprobs` has an entry for each token of the prompt, null for the first: an object from token
    ids (as text) to `{"logprob", "rank", "decoded_token"}`, with the token itself and the most likely one (vLLM 0.32).

    Raises:
        MeasureError: the answer has not that form.
    """
    try:
        entries = answer["choices"][0]["prompt_logprobs"]
        if entries is None or len(entries) != len(ids):
            have = "no" if entries is None else f"{len(entries)}"
            raise MeasureError(f"the server returned {have} prompt_logprobs for {len(ids)} tokens")
        return tuple(_gap(entries[i], ids[i]) for i in range(start, len(ids)))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise MeasureError(f"no prompt_logprobs in the answer: {one_line(str(answer))}") from error


def _gap(entry: Mapping[str, Mapping[str, float]], token: int) -> float:
    written = entry[str(token)]
    # With equal log-probabilities the rank may be 2 although nothing is more likely; the difference is 0 all the same.
    return max(e["logprob"] for e in entry.values()) - written["logprob"]


def scored_length_limit(
    vocab_size: int, free_bytes: int, *, share: float = 0.25, max_batched_tokens: int | None = None
) -> int:
    """Return how many tokens (prompt and output) may be scored at once without running the server out of memory.

    Read in vLLM 0.32.0. The V1 runner (`GPUModelRunner._get_prompt_logprobs_dict`) computes, for every prompt position
    of one forward at once, the logits over the whole vocabulary in the head's type (2 or 4 bytes), then their
    log-softmax as float32 (4 bytes) while the logits are still there; the counting of ranks is compiled and makes no
    copy, but a soft cap of the logits or the gather of tensor parallelism makes one more. That is at most 3 times
    4 bytes a position and vocabulary entry. The server reserves none of it when it starts: its profile run makes
    logits for `max_num_seqs` positions only. The V2 runner (`compute_prompt_logprobs_with_chunking`) takes 1,024
    positions at a time and never makes the log-softmax, so the same bound holds. Positions of one forward are at most
    `max_num_batched_tokens`, with chunked prefill or without. vLLM does not use its prefix cache for such requests,
    so every position is computed.

    Args:
        vocab_size: entries of the vocabulary.
        free_bytes: memory of the device that is free while the server runs.
        share: how much of it may be used.
        max_batched_tokens: the server's `max_num_batched_tokens`, None where it is not known.

    Returns:
        The most tokens; `UNBOUNDED` where a whole batch fits, 0 where not even 64 tokens do: do not score then.
    """
    positions = int(max(0, free_bytes) * share) // (max(1, vocab_size) * _BYTES_PER_LOGIT)
    if max_batched_tokens is not None and positions >= max_batched_tokens:
        return UNBOUNDED
    return positions if positions >= _SHORTEST else 0
