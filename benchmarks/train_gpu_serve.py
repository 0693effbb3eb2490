"""The stage `serve` of benchmarks/train_gpu.py: the exported head in real vLLM, beside the baseline and n-gram.

Every question to each head alone, for the server's counters and for the walk over the very answers that it gave; then
trials between the servers, the same requests to all in turns. vLLM 0.25 runs
n-gram on its V1 runner and the others on V2: that is part of what n-gram costs there.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.prediction_arms import Server, answers, healthy, ngram, probe, trial

from draftworth.engines.vllm.metrics import parse_metrics
from draftworth.training.columns import SampleWriter
from draftworth.training.samples import Sample

MT_BENCH = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
STREAMS = "1,2,4,8,16,32,48"
_MANY = 6
"""Cores from which on the client has two of them to itself."""


def servers(head: Path, ks: Sequence[int], port: int) -> tuple[Server, ...]:
    """Return the arms, the baseline first."""
    found = [Server("baseline", 0, port), Server("ngram-3", 0, port + 1, ngram(3))]
    for k in ks:
        config = {"method": "eagle3", "model": str(head.resolve()), "num_speculative_tokens": k}
        found.append(Server(f"eagle3-{k}", 0, port + 1 + len(found), config))
    return tuple(found)


def choose(rows: Sequence[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    """Return so many questions: all of MT-bench's categories first, the others in turns, in the file's order."""
    first = [row for row in rows if row["category"] in MT_BENCH][:count]
    others: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["category"] not in MT_BENCH:
            others.setdefault(str(row["category"]), []).append(row)
    while len(first) < count and any(others.values()):
        for some in others.values():
            if some and len(first) < count:
                first.append(some.pop(0))
    return first


def run_serve(
    model: Path,
    head: Path,
    questions: Path,
    out: Path,
    *,
    count: int,
    ks: Sequence[int],
    loads: Sequence[int],
    max_tokens: int,
    max_model_len: int,
    start_s: float,
    limit_s: float,
    command: Sequence[str],
    probe_s: int,
    port: int,
) -> dict[str, Any]:
    """Start the servers, measure, end them; what a time limit cuts off is done by the next call.

    Args:
        model: the target.
        head: the exported head.
        questions: Spec-Bench's, JSON lines.
        out: takes records, counters and answers.
        count: questions.
        ks: drafted tokens a step, an arm each.
        loads: requests at a time, a trial each.
        max_tokens: of an answer.
        max_model_len: of the servers.
        start_s: seconds until all answer.
        limit_s: seconds from now for all of it.
        command: further arguments of every server.
        probe_s: seconds for the baseline's costs; 0: none.
        port: the first one.
    """
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    chosen = choose([json.loads(line) for line in questions.read_text("utf-8").split("\n") if line.strip()], count)
    asked = out / "questions.jsonl"
    asked.write_text("".join(json.dumps(row) + "\n" for row in chosen), encoding="utf-8")
    arms = servers(head, ks, port)
    told: dict[str, Any] = {"questions": len(chosen)}
    if taken := [one.url for one in arms if answers(one)]:
        return {**told, "failed": f"already serving at {', '.join(taken)}: end it first"}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that `timeout` leaves no server behind
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= _MANY:  # servers answer in turns and idle otherwise; the client keeps two cores to itself
        os.sched_setaffinity(0, cores[-2:])
        cores = cores[:-2]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        words = [*command, "--max-model-len", str(max_model_len)]
        # The first one alone: it fills the cache of compiled code that the others read.
        for some in (arms[:1], arms[1:]):
            started = [_start(one, model, out, words, cores) for one in some]
            processes += started
            for one, process in zip(some, started, strict=True):
                if not healthy(one, process, start_s):
                    return {**told, "failed": _tail(out, one)}
        told["start_s"] = round(time.monotonic() - began, 1)
        print(f"{time.strftime('%X')} {len(arms)} servers answer after {told['start_s']} s", flush=True)
        for one in arms[2:]:
            if not (out / f"counters-{one.name}.json").exists():
                _alone(one, chosen, out, max_tokens)
        if probe_s and not (out / f"costs-{arms[0].name}.json").exists():
            probe(arms[0], out, probe_s, STREAMS)
        work = {"source": str(asked), "max_tokens": max_tokens, "temperature": 0.0, "first_turn_only": True}
        told["out_of_time"] = not _trials(arms, out, work, loads, until=began + limit_s)
        return told
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _trials(
    arms: tuple[Server, ...], out: Path, work: Mapping[str, object], loads: Sequence[int], *, until: float
) -> bool:
    """Run the trials that are missing; returns False where the time did not allow one to begin."""
    for load in loads:
        done = out / f"trial-{load}.done"
        if done.exists():
            continue
        if time.monotonic() > until:
            return False
        trial(out, f"trial-{load}", arms, {**work, "concurrency": load})
        if list((out / f"trial-{load}").glob("**/trial.json")):
            done.touch()
    return True


def compared(counters: Mapping[str, Any], walked: Mapping[str, Any]) -> dict[str, Any]:
    """Return a server's counters beside the walk over the same answers.

    Args:
        counters: of `counters-<arm>.json`.
        walked: the walk worker's counts with the same k.
    """
    length = 1 + counters["accepted"] / counters["drafts"] if counters["drafts"] else None
    # All steps, those that an answer's end cuts off too: that is what the server's counters have.
    own = 1 + walked["accepted"] / walked["steps"] if walked["steps"] else None
    off = None if length is None or own is None else length / own - 1
    return {
        "server_length": length,
        "walk_length_all_steps": own,
        "difference": off,
        "within_2_percent": off is not None and abs(off) <= 0.02,  # noqa: PLR2004 - the goal
        "server_accepted_at": [one / counters["drafts"] for one in counters["per_position"]] if length else None,
        "walk_accepted_at": [one / walked["full_steps"] for one in walked["accepted_at"]]
        if walked["full_steps"]
        else None,
    }


def _start(
    server: Server, model: Path, out: Path, command: Sequence[str], cores: Sequence[int]
) -> "subprocess.Popen[bytes]":
    words = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    words += ["--model", str(model), "--served-model-name", "target", "--host", "127.0.0.1"]
    words += ["--port", str(server.port), *command]
    if server.speculation:
        words += ["--speculative-config", json.dumps(server.speculation)]
    with (out / f"{server.name}.log").open("wb") as log:
        return subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def _tail(out: Path, server: Server) -> str:
    text = (out / f"{server.name}.log").read_text("utf-8", "replace")[-3000:]
    print(f"{server.name} did not start:", text, flush=True)
    return f"{server.name}: {text[-400:]}"


def _alone(server: Server, questions: Sequence[Mapping[str, Any]], out: Path, max_tokens: int) -> None:
    """Ask every question alone at temperature 0; keep the ids and what the server counted meanwhile."""
    before, began = _counted(server), time.monotonic()
    rows = []
    for row in questions:
        body = {
            "model": "target",
            "messages": [{"role": "user", "content": row["turns"][0]}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "return_token_ids": True,
        }
        answer = _ask(server, "/v1/chat/completions", body)
        ids = answer["choices"][0]["token_ids"]
        rows.append((str(row["category"]), answer["prompt_token_ids"], ids))
    seconds, after = time.monotonic() - began, _counted(server)
    counts = {name: after[name] - before[name] for name in ("drafts", "accepted")}
    at = [one - other for one, other in zip(after["per_position"], before["per_position"], strict=True)]
    tokens = sum(len(ids) for _, _, ids in rows)
    told = {**counts, "per_position": at, "tokens": tokens, "seconds": round(seconds, 3), "max_tokens": max_tokens}
    with SampleWriter(out / f"answers-{server.name}.parquet") as writer:
        for number, (category, prompt, ids) in enumerate(rows):
            whole = np.array([*prompt, *ids], np.int32)
            mask = (np.arange(len(whole)) >= len(prompt)).astype(np.uint8)
            writer.add(f"question/{number}", category, category, Sample(whole, mask, exact=True))
    (out / f"counters-{server.name}.json").write_text(json.dumps(told), encoding="utf-8")
    print(f"{time.strftime('%X')} {server.name} alone: {json.dumps(told)}", flush=True)


def _counted(server: Server) -> dict[str, Any]:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as page:  # noqa: S310 - http
        told = parse_metrics(page.read().decode())
    k = int((server.speculation or {}).get("num_speculative_tokens", 0))
    counters, at = told.counters, list(told.per_position or ())
    return {
        "drafts": counters.get("vllm:spec_decode_num_drafts_total", 0.0) or 0.0,
        "accepted": counters.get("vllm:spec_decode_num_accepted_tokens_total", 0.0) or 0.0,
        "per_position": [*at, *([0.0] * k)][:k],
    }


def _ask(server: Server, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 - http
        f"{server.url}{path}", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:  # noqa: S310 - http
        found: dict[str, Any] = json.load(answer)
    return found
