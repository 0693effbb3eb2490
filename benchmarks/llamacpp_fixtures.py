"""Record what a real llama.cpp server writes, as the fixtures of its adapter's tests.

    python benchmarks/llamacpp_fixtures.py --server …/bin/llama-server --model …/SmolLM2-135M-Instruct-bf16.gguf

Starts the server once without speculation, once with `ngram-simple`, once with `ngram-mod` at verbosity 4, and in
every way that fails; sends a handful of short requests, one at a time, and keeps the pages, the answers and the log.
Paths become `/models/…`, what a log tells of the machine is left out. Takes about a minute on two cores.

It also says how many steps an answer's timings miss: between two scrapes around each answer `n_decode_total` grows by
one for its prompt and by one for each step.
"""

import argparse
import json
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
START_LIMIT = 120.0
OUT = Path(__file__).parent.parent / "tests" / "engines" / "data" / "llamacpp"
TEXT = (
    "The harbour wall was built in 1893 from blocks of grey granite. The harbour master counts forty boats each "
    "morning, and writes every name into a green book. In winter the boats are pulled up onto the slip and painted "
    "red, white and blue."
)
COPY = f"{TEXT}\n\nAgain, word for word: {TEXT[:60]}"
SIMPLE = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", "8")
MOD = (
    *("--spec-type", "ngram-mod", "--spec-ngram-mod-n-match", "4", "--spec-ngram-mod-n-min", "1"),
    *("--spec-ngram-mod-n-max", "8", "-lv", "4"),
)
FAILS: dict[str, tuple[str, ...]] = {
    "unknown_flag": ("--no-such-flag", "3"),
    "removed_flag": ("--draft-max", "8"),
    "unknown_type": ("--spec-type", "ngram_simple"),
    "bad_value": ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "9999"),
    "no_mtp_layers": ("--spec-type", "draft-mtp"),
    "synthetic_without_type": ("--spec-synth-len", "2.5"),
}
DIFFERS: dict[str, tuple[str, ...]] = {
    "draft_simple_without_draft": ("--spec-type", "draft-simple"),
    "eagle3_without_draft": ("--spec-type", "draft-eagle3"),
    "synthetic": ("--spec-type", "ngram-simple", "--spec-synth-len", "2.5"),
}
_MACHINE = re.compile(
    r"- CPU +: |- CUDA|device_info:|common_memory_breakdown|common_params_fit|fitting params|-fit off"
)
_NOISE = re.compile(
    r"- kv +\d+:|[ID] print_info: |[ID] load: |KV overrides|- type +\w+:|skipping, slot|saving idle|prompt_clear"
    r"|^\t| cache state: |server_strea|prompt with length|looking for better|- prompt 0x|resolve_fused|sched_reserve"
)
_SYSTEM = re.compile(r"(system_info: n_threads = .*? / )\d+ \|.*")


class Server:
    """A server that runs.

    Attributes:
        port: where it listens.
        log: its output so far.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log

    def get(self, path: str) -> str:
        """Return a page."""
        with urllib.request.urlopen(f"http://{HOST}:{self.port}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def post(self, path: str, body: Mapping[str, Any]) -> str:
        """Send a request and return what came back."""
        request = urllib.request.Request(
            f"http://{HOST}:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:  # noqa: S310 - the same
            return str(answer.read().decode())


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(server: Path, model: Path, args: Sequence[str], log: Path) -> Iterator[Server]:
    """Run a server until the end of the block; yields it once it answers, or once it has ended."""
    port = free_port()
    command = ["nice", "-n", "5", str(server), "-m", str(model), "--host", HOST, "--port", str(port)]
    command += ["--threads", "2", "--ctx-size", "4096", "--no-warmup", *args]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            found = Server(process, port, log)
            deadline = time.monotonic() + START_LIMIT
            while process.poll() is None and time.monotonic() < deadline:
                with suppress(OSError):
                    found.get("/health")
                    break
                time.sleep(0.1)
            yield found
        finally:
            process.terminate()
            process.wait()


def requests() -> list[tuple[str, dict[str, Any]]]:
    """Return path and body of every request, in order."""
    say = {"messages": [{"role": "user", "content": f"Repeat this text word for word, nothing else: {TEXT}"}]}
    greedy = {"temperature": 0}
    return [
        ("/v1/completions", {"prompt": COPY, "max_tokens": 80, **greedy}),
        ("/v1/completions", {"prompt": COPY, "max_tokens": 80, "stop": ["STOP"], **greedy}),
        ("/v1/completions", {"prompt": "Fruits: apple, pear, apple, pear, apple, pear,", "max_tokens": 64, **greedy}),
        ("/v1/completions", {"prompt": "Explain briefly why the sky is blue.", "max_tokens": 30, **greedy}),
        ("/v1/chat/completions", {**say, "max_tokens": 90, **greedy}),
        (
            "/v1/chat/completions",
            {**say, "max_tokens": 90, "stream": True, "stream_options": {"include_usage": True}, **greedy},
        ),
        ("/v1/chat/completions", {**say, "max_tokens": 12, "stream": True, "timings_per_token": True, **greedy}),
        ("/completion", {"prompt": "one two three one two three one two three", "n_predict": 40, **greedy}),
        ("/v1/completions", {"prompt": "The answer is", "max_tokens": 1, **greedy}),
    ]


def counter(page: str, name: str) -> float:
    """Return one counter of a page."""
    match = re.search(rf"^llamacpp:{name} (\S+)$", page, re.MULTILINE)
    return float(match[1]) if match else 0.0


def exchange(server: Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send one request; returns what was asked, what came and how many decode calls it took."""
    before = counter(server.get("/metrics"), "n_decode_total")
    text = server.post(path, body)
    calls = counter(server.get("/metrics"), "n_decode_total") - before
    asked = {key: value for key, value in body.items() if key not in ("prompt", "messages")}
    if not body.get("stream"):
        return {"path": path, "body": asked, "decode_calls": int(calls), "answer": json.loads(text)}
    chunks = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
    return {"path": path, "body": asked, "decode_calls": int(calls), "chunks": [*chunks[:2], *chunks[-2:]]}


def timings_of(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return the timings of an exchange."""
    found: dict[str, Any] = (one.get("answer") or one["chunks"][-1])["timings"]
    return found


def stopped_in_a_draft(server: Server) -> dict[str, Any]:
    """Let a stop string end an answer in the middle of a draft: a word from late in the answer without it."""
    body = {"prompt": COPY, "max_tokens": 80, "temperature": 0}
    text = json.loads(server.post("/v1/completions", body))["choices"][0]["text"]
    words = text[len(text) // 2 :].split()
    return exchange(server, "/v1/completions", {**body, "stop": [" ".join(words[2:4])]})


def anonymous(text: str, model: Path) -> str:
    """Return text without this machine's paths."""
    return text.replace(str(model), f"/models/{model.name}").replace(str(model.parent), "/models")


def trimmed(log: str, model: Path) -> str:
    """Return a log without what it tells of the machine and of the model's file."""
    kept = [line for line in log.splitlines() if not _MACHINE.search(line) and not _NOISE.search(line)]
    return anonymous("\n".join(_SYSTEM.sub(r"\g<1>2 | CPU : AVX2 = 1 | ", line) for line in kept) + "\n", model)


def record(server: Path, model: Path, name: str, args: Sequence[str], out: Path) -> None:
    """Record one way to start the server."""
    log = out / f"{name}_log.txt"
    build = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)
    print(f"{name}: {(build.stderr + build.stdout).strip().splitlines()[0]}")
    with running(server, model, ["--metrics", *args], log) as live:
        pages = {"metrics_before.txt": live.get("/metrics"), "props.json": live.get("/props")}
        answers = [exchange(live, path, body) for path, body in requests()]
        pages |= {"metrics_after.txt": live.get("/metrics"), "slots.json": live.get("/slots")}
        stopped = stopped_in_a_draft(live)
    for one in [*answers, stopped]:
        timings = timings_of(one)
        steps = timings["predicted_n"] - 1 - timings.get("draft_n_accepted", 0)
        print(f"  {one['path']}: {steps} steps by its timings, {one['decode_calls'] - 1} by decode calls")
    pages["answers.json"] = json.dumps(answers, indent=1) + "\n"
    pages["stopped.json"] = json.dumps(stopped, indent=1) + "\n"
    for page, text in pages.items():
        # The template is the model's, long and of no use here.
        kept = re.sub(r'"chat_template":"(?:[^"\\]|\\.)*"', '"chat_template":""', text)
        (out / f"{name}_{page}").write_text(anonymous(kept, model), encoding="utf-8")
    log.write_text(trimmed(log.read_text(encoding="utf-8", errors="replace"), model), encoding="utf-8")


def record_starts(server: Path, model: Path, out: Path) -> None:
    """Record the starts that fail, and those that do something else than asked."""
    ways = {**{f"fails_{k}": v for k, v in FAILS.items()}, **{f"differs_{k}": v for k, v in DIFFERS.items()}}
    for name, args in ways.items():
        log = out / f"{name}.txt"
        with running(server, model, args, log):
            pass
        log.write_text(trimmed(log.read_text(encoding="utf-8", errors="replace"), model), encoding="utf-8")
    missing = out / "fails_no_model.txt"
    with running(server, Path("/models/missing.gguf"), (), missing):
        pass
    with running(server, model, (), out / "port.txt") as holder, (out / "fails_port_busy.txt").open("wb") as output:
        command = [str(server), "-m", str(model), "--host", HOST, "--port", str(holder.port), "--no-warmup"]
        subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False, timeout=START_LIMIT)
    (out / "port.txt").unlink()
    for log in (missing, out / "fails_port_busy.txt"):
        text = re.sub(r"port: \d+", "port: 8080", log.read_text(encoding="utf-8", errors="replace"))
        log.write_text(trimmed(text, model), encoding="utf-8")


def main() -> None:
    """Record everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name, args in (("baseline", ()), ("ngram_simple", SIMPLE), ("ngram_mod", MOD)):
        record(asked.server, asked.model, name, args, asked.out)
    record_starts(asked.server, asked.model, asked.out)


if __name__ == "__main__":
    main()
