"""The events of one streamed answer of the fake server, each with the time to wait before it."""

import dataclasses
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.fakes.model import EOS, PseudoModel, pace
from tests.fakes.script import Script


@dataclass(frozen=True, slots=True)
class Answer:
    """One request and what is written for it."""

    body: dict[str, Any]
    prompt: list[int]
    out: list[int]
    most: int
    number: int
    model: str

    @property
    def finish_reason(self) -> str:
        """`stop` where the end token was written, `length` where the limit came first."""
        return "stop" if self.out[-1] == EOS and not self.body.get("ignore_eos") else "length"


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes to send after a wait. `tokens` is 0 for events that carry none."""

    data: bytes
    wait_ms: float = 0.0
    tokens: int = 0
    first: bool = False
    drafted: int = 0
    accepted: int = 0


def plan(script: Script, answer: Answer, model: PseudoModel, k: int | None, spec_stats: str) -> Iterator[Piece]:
    """Yield the events of a stream. `k` is num_speculative_tokens, None where the server does not speculate."""
    body, out = answer.body, answer.out
    with_ids = script.token_ids and bool(body.get("return_token_ids"))
    if "prompt" in body:
        script = dataclasses.replace(script, role_chunk=False)  # a completion has no roles
    if script.role_chunk:
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        prompt = answer.prompt if with_ids else None
        yield Piece(_event(answer, [choice], prompt_token_ids=prompt, prompt_text=None), wait_ms=script.first_token_ms)
    wait = 0.0 if script.role_chunk else script.first_token_ms
    token_ms = pace(script, answer.number)
    steps = list(_steps(script, len(out), k))
    sent = 0
    for i, (size, drafted) in enumerate(steps):
        if script.empty_chunks:
            yield Piece(_event(answer, [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}]))
        ids = out[sent : sent + size]
        choice = {
            "index": 0,
            "delta": _delta(script, model.text(ids, after=sent), sent),
            "logprobs": None,
            "finish_reason": None,
        }
        last = i == len(steps) - 1
        if last:
            choice |= {"finish_reason": answer.finish_reason, "stop_reason": None}
        if script.token_ids:
            choice["token_ids"] = ids if with_ids else None
        more: dict[str, Any] = (
            {} if script.role_chunk or i else {"prompt_token_ids": answer.prompt if with_ids else None}
        )
        if "prompt" in body:
            del choice["delta"]
            choice |= {"text": model.text(ids, after=sent), **more}
            more = {}
        if script.continuous_usage:
            more = {**more, "usage": _usage(answer, sent + size)}
        yield Piece(
            _event(answer, [choice], **more),
            wait_ms=token_ms * size if i else wait,
            tokens=size,
            first=i == 0,
            drafted=drafted,
            accepted=min(size - 1, drafted),
        )
        sent += size
    if script.usage and (body.get("stream_options") or {}).get("include_usage"):
        yield Piece(_event(answer, [], **_closing(script, answer, steps, k, spec_stats)))
    yield Piece(b"data: [DONE]\n\n")


def _steps(script: Script, total: int, k: int | None) -> Iterator[tuple[int, int]]:
    """Yield (tokens, drafted tokens) of each chunk; the first chunk is the prefill and drafts nothing."""
    sent = min(script.first_chunk_tokens, total)
    yield sent, 0
    if script.buffered and sent < total:
        yield total - sent, 0
        return
    step = 0
    while sent < total:
        size = script.tokens_per_chunk[step % len(script.tokens_per_chunk)]
        step += 1
        drafts = k is not None and script.draft_every > 0 and step % script.draft_every == 0
        if k is not None:
            size = min(size, k + 1) if drafts else 1
        size = min(size, total - sent)
        yield size, k if drafts and k is not None else 0
        sent += size


def _delta(script: Script, text: str, after: int) -> dict[str, Any]:
    if script.tool_calls:
        call: dict[str, Any] = {"index": 0, "function": {"arguments": text}}
        if after == 0:
            call |= {"id": "call_0", "type": "function"}
            call["function"]["name"] = "write"
        return {"tool_calls": [call]}
    if script.reasoning_field and after < script.reasoning_tokens:
        return {script.reasoning_field: text}
    return {"content": text}


def _closing(
    script: Script, answer: Answer, steps: list[tuple[int, int]], k: int | None, spec_stats: str
) -> dict[str, Any]:
    usage: dict[str, Any] = _usage(answer, len(answer.out) + script.usage_more)
    if script.usage_details:
        thought = min(script.reasoning_tokens, len(answer.out)) if script.reasoning_field else 0
        usage["completion_tokens_details"] = {"reasoning_tokens": thought}
        usage["prompt_tokens_details"] = {"cached_tokens": len(answer.prompt) - 1}
    closing: dict[str, Any] = {"usage": usage, "system_fingerprint": "vllm-0.32.0-00000000"}
    if spec_stats == "none" or k is None:
        return closing
    verified = [(size - 1, drafted) for size, drafted in steps if drafted and not script.zero_spec_stats]
    accepted, drafted = sum(a for a, _ in verified), sum(d for _, d in verified)
    stats = {
        "mean_acceptance_length": 1.0 + accepted / len(verified) if verified else 1.0,
        "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
        "acceptance_histogram": [sum(a == j for a, _ in verified) for j in range(k + 1)],
        "num_spec_steps": len(verified),
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": k,
    }
    if spec_stats == "detailed":
        stats |= {"per_step_accepted": [a for a, _ in verified], "per_step_drafted": [d for _, d in verified]}
    return {**closing, "metrics": {"speculative_decoding": stats}}


def _usage(answer: Answer, out: int) -> dict[str, Any]:
    prompt = len(answer.prompt)
    return {"prompt_tokens": prompt, "total_tokens": prompt + out, "completion_tokens": out}


def _event(answer: Answer, choices: list[dict[str, Any]], **more: Any) -> bytes:
    event = {
        "id": f"{'cmpl' if 'prompt' in answer.body else 'chatcmpl'}-{answer.number:016x}",
        "object": "text_completion" if "prompt" in answer.body else "chat.completion.chunk",
        "created": int(time.time()),
        "model": answer.model,
        "choices": choices,
        **more,
    }
    return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"
