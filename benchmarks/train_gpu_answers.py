"""The stage `answers` of benchmarks/train_gpu.py: real vLLM with the target writes every prompt's answers.

In process (`vllm.LLM`): no HTTP, no text, ids only. In rounds over all prompts in one fixed mixed order: the first
round is the answer at temperature 0 and some sampled ones, each further one as many sampled ones again. A round is cut
into chunks, each a file: what is there is not asked again, and a time limit loses at most the chunk that was not begun.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.train_gpu_ids import Answers, Prompts, Ragged, loss_tokens, order


def answer(
    model: Path,
    prompts: Prompts,
    parts: Path,
    *,
    limit_s: float,
    goal: int,
    engine: dict[str, Any],
    at_a_time: int,
    chunk: int,
    rounds: int,
    sampled: int,
    max_tokens: int,
    temperature: float,
) -> dict[str, Any]:
    """Write what is missing of the rounds; return what there is and how fast it was.

    Args:
        model: the target.
        prompts: all of them.
        parts: the folder of the chunks' files.
        limit_s: seconds from now after which no chunk is begun that would not end in time.
        goal: tokens to learn from after which no further round is begun.
        engine: further arguments of `vllm.LLM`.
        at_a_time: requests at a time.
        chunk: prompts of a chunk.
        rounds: how many there are at most.
        sampled: sampled answers of a round.
        max_tokens: of an answer.
        temperature: of the sampled ones.
    """
    began = time.monotonic()
    parts.mkdir(parents=True, exist_ok=True)
    ids, mixed = list(prompts.ids), order(len(prompts.ids))
    chunks = -(-len(mixed) // chunk)
    done = {name: Answers.load(parts / name) for name in sorted(one.name for one in parts.glob("part-*.npz"))}
    missing = [(one, at) for one in range(rounds) for at in range(chunks) if f"part-{one:02}-{at:03}.npz" not in done]
    told: dict[str, Any] = {"chunks": chunks, "made_now": 0, "prompts": len(ids), "max_tokens": max_tokens}
    llm: Any = None
    longest = tokens_now = 0.0
    seconds_now = 0.0
    for number, at in missing:
        if number and at == 0 and loss_tokens(done.values(), prompts.held) >= goal:
            break
        if time.monotonic() - began + 1.3 * longest > limit_s:
            told["out_of_time"] = True
            break
        if llm is None:
            llm, params = _engine(model, engine, at_a_time, seed=number * 1000 + at, longest=_longest(ids, max_tokens))
            told["start_s"] = round(time.monotonic() - began, 1)
        some = mixed[at * chunk : (at + 1) * chunk]
        jobs: list[tuple[int, bool]] = [(int(one), True) for one in some] if number == 0 else []
        jobs += [(int(one), False) for one in some if not prompts.held[one]]
        jobs.sort()  # a prompt's requests side by side: its cached blocks serve all of them
        begun = time.monotonic()
        outputs = llm.generate(
            [{"prompt_token_ids": ids[one].tolist()} for one, _ in jobs],
            [
                params(temperature=0.0 if greedy else temperature, n=1 if greedy else sampled, max_tokens=max_tokens)
                for _, greedy in jobs
            ],
            use_tqdm=False,
        )
        made = _answers(jobs, outputs)
        made.save(parts / f"part-{number:02}-{at:03}.npz")
        done[f"part-{number:02}-{at:03}.npz"] = made
        seconds = time.monotonic() - begun
        longest, seconds_now = max(longest, seconds), seconds_now + seconds
        tokens_now += len(made.ids.ids)
        told["made_now"] += 1
        learned = loss_tokens(done.values(), prompts.held)
        print(
            f"{time.strftime('%X')} round {number} chunk {at + 1}/{chunks}: {len(made.ids):,} answers, "
            f"{len(made.ids.ids):,} tokens in {seconds:.1f} s ({len(made.ids.ids) / seconds:,.0f} tokens/s); "
            f"{learned:,} to learn from",
            flush=True,
        )
    told["tokens_per_s"] = tokens_now / seconds_now if seconds_now else None
    return {**told, **summary(prompts, list(done.values()))}


def summary(prompts: Prompts, parts: list[Answers]) -> dict[str, Any]:
    """Return how much there is."""
    if not parts:
        return {"answers": 0, "answered_prompts": 0, "loss_tokens": 0}
    every = Answers.joined(parts)
    lengths = every.ids.lengths
    return {
        "answers": len(every.ids),
        "answered_prompts": len(np.unique(every.prompt)),
        "loss_tokens": loss_tokens(parts, prompts.held),
        "tokens": int(lengths.sum()),
        "mean_tokens": float(lengths.mean()),
        "mean_tokens_greedy": float(lengths[every.greedy].mean()) if every.greedy.any() else None,
        "ended_by_themselves": float(every.ended.mean()),
        "samples_a_prompt": float(np.bincount(every.prompt).max()),
    }


def _longest(ids: list[Any], max_tokens: int) -> int:
    return max(len(one) for one in ids) + max_tokens


def _engine(model: Path, engine: dict[str, Any], at_a_time: int, *, seed: int, longest: int) -> tuple[Any, Any]:
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found]  # noqa: PLC0415 - slow, and not the tool's

    def params(**some: Any) -> Any:
        # No seed of their own: vLLM samples requests that have one in a slower way.
        return SamplingParams(top_p=1.0, top_k=0, detokenize=False, **some)

    made = LLM(model=str(model), max_num_seqs=at_a_time, seed=seed, max_model_len=longest + 8, **engine)
    return made, params


def _answers(jobs: list[tuple[int, bool]], outputs: list[Any]) -> Answers:
    lists, prompt, greedy, ended = [], [], [], []
    for (one, is_greedy), output in zip(jobs, outputs, strict=True):
        for answered in output.outputs:
            lists.append([int(token) for token in answered.token_ids])
            prompt.append(one)
            greedy.append(is_greedy)
            ended.append(answered.finish_reason == "stop")
    return Answers(Ragged.of(lists), np.array(prompt, np.int64), np.array(greedy, np.bool_), np.array(ended, np.bool_))
