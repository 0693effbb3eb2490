"""The fake server as a process: vLLM's flags, vLLM's log lines, child processes that may stay behind."""

import argparse
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.fakes.script import Script

_PARAMETERS_IGNORED = "min_p and logit_bias parameters won't work with speculative decoding."
_LONG_LOOKUP = 30
_CHILD_SECONDS = 300  # a child that a failing test forgets ends by itself


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line. An unknown flag or a bad value ends the process with 2, as vLLM's does."""
    parser = argparse.ArgumentParser(prog="api_server.py", allow_abbrev=False)
    parser.add_argument("--script", type=_script, default=Script(), help="JSON file with the fields of Script")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--model", default="fake/model-1b")
    parser.add_argument("--served-model-name", nargs="+", default=None)
    parser.add_argument("--speculative-config", "-sc", type=_json, default=None)
    parser.add_argument("--profiler-config", type=_json, default=None, help="taken; there is no profiler")
    parser.add_argument("--per-request-spec-decode-metrics", choices=("none", "summary", "detailed"), default="none")
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    for value in ("--gpu-memory-utilization", "--max-num-seqs", "--max-num-batched-tokens", "--seed", "--api-key"):
        parser.add_argument(value, default=None)
    for switch in ("--enforce-eager", "--async-scheduling", "--enable-prefix-caching"):
        parser.add_argument(switch, action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument("--disable-log-stats", action="store_true")
    # vLLM takes underscores for dashes in the names of flags.
    return parser.parse_args([_dashes(arg) for arg in argv])


def _dashes(arg: str) -> str:
    if not arg.startswith("--"):
        return arg
    name, sign, value = arg.partition("=")
    return name.replace("_", "-") + sign + value


def _json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        message = f"Value {text} cannot be converted to <function loads>."
        raise argparse.ArgumentTypeError(message) from error
    if not isinstance(value, dict):
        message = f"Value {text} is not a JSON object."
        raise argparse.ArgumentTypeError(message)
    return value


def _script(path: str) -> Script:
    try:
        return Script.load(Path(path))
    except (OSError, ValueError, TypeError) as error:
        message = f"{path}: {error}"
        raise argparse.ArgumentTypeError(message) from error


def log(line: str, *, source: str, level: str = "INFO", process: str = "APIServer", pid: int | None = None) -> None:
    """Print one line as vLLM's logger does."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    print(f"({process} pid={pid or os.getpid()}) {level} {stamp} [{source}] {line}", flush=True)  # noqa: T201 - the log


class Line(NamedTuple):
    """One line of a start."""

    text: str
    source: str
    process: str = "APIServer"
    level: str = "INFO"


_SCHEDULED = (
    "max_num_scheduled_tokens is set to 2048 based on the speculative decoding settings. This may lead to suboptimal "
    "performance. Consider increasing max_num_batched_tokens to accommodate the additional draft token slots, or "
    "decrease num_speculative_tokens."
)


def startup_lines(args: argparse.Namespace, version: str) -> list[Line]:
    """Return the lines of a start that matter, with the words of vLLM 0.32.0."""
    config: dict[str, Any] | None = args.speculative_config
    shown = {
        name: value
        for name, value in vars(args).items()
        if value not in (None, False, "none") and name not in ("script", "disable_log_stats")
    }
    engine = (
        f"Initializing a V1 LLM engine (v{version}) with config: model='{args.model}', "
        f"speculative_config={_speculative(config)}, tokenizer='{args.model}', skip_tokenizer_init=False, "
        f"dtype=torch.bfloat16, max_seq_len={args.max_model_len}, "
        f"tensor_parallel_size={args.tensor_parallel_size}, pipeline_parallel_size=1, data_parallel_size=1, "
        f"quantization=None, enforce_eager={bool(args.enforce_eager)}, kv_cache_dtype=auto, device_config=cpu, "
        "observability_config=ObservabilityConfig(show_hidden_metrics_for_version=None, "
        f"per_request_spec_decode_metrics='{args.per_request_spec_decode_metrics}', kv_cache_metrics=False), seed=0, "
        f"served_model_name={served_names(args)[0]}, enable_prefix_caching=True, enable_chunked_prefill=True"
    )
    size = (
        f"CPU KV cache size: 46,592 tokens, Maximum concurrency for {args.max_model_len:,} tokens per request: 22.75x"
    )
    took = f"init engine (profile, create kv cache, warmup model) took {args.script.load_seconds:.2f} s"
    async_off = "Async scheduling not supported with ngram-based speculative decoding and will be disabled."
    lines = [
        Line("", "api_utils.py:347"),
        Line(f" ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}", "api_utils.py:347"),
        Line(f"  █▄█▀ █     █     █     █  model   {args.model}", "api_utils.py:347"),
        Line(f"non-default args: {shown}", "api_utils.py:286"),
        Line("Resolved architecture: LlamaForCausalLM", "model.py:733"),
        Line(f"Using max model len {args.max_model_len}", "model.py:2152"),
        Line(async_off, "vllm.py:1605", level="WARNING"),
        Line(_SCHEDULED, "scheduler.py:283"),
        Line(engine, "core.py:133", "EngineCore"),
        Line(_PARAMETERS_IGNORED, "__init__.py:211", "Worker", "WARNING"),
        Line(f"Starting to load model {args.model}...", "cpu_model_runner.py:68", "Worker"),
        Line("Loading weights took 0.13 seconds", "default_loader.py:501", "Worker"),
        Line("Loading drafter model...", "cpu_model_runner.py:75", "Worker"),
        Line(size, "kv_cache_utils.py:2327", "EngineCore"),
        Line(took, "core.py:402", "EngineCore"),
        Line("Supported tasks: ['generate']", "entry.py:136"),
        Line(f"Starting vLLM server on http://{args.host}:{args.port}", "entry.py:140"),
    ]
    unsaid = set() if config else {async_off, _SCHEDULED, _PARAMETERS_IGNORED, "Loading drafter model..."}
    if config and (config.get("method") != "ngram" or args.async_scheduling is False):
        unsaid.add(async_off)
    return [line for line in lines if line.text not in unsaid]


def _speculative(config: dict[str, Any] | None) -> str:
    if config is None:
        return "None"
    method, model = config.get("method", "draft_model"), config.get("model")
    return (
        f"SpeculativeConfig(method={method!r}, model={model!r}, num_spec_tokens={config.get('num_speculative_tokens')})"
    )


def served_names(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the names the model answers to."""
    return tuple(args.served_model_name or [args.model])


def load(args: argparse.Namespace) -> None:
    """Print the start of a server, spread over load_seconds; die in it where the script says so."""
    script: Script = args.script
    if args.per_request_spec_decode_metrics != "none" and args.speculative_config is None:
        print(  # noqa: T201 - the log
            "ValueError: --per-request-spec-decode-metrics requires speculative decoding to be enabled "
            "(via --speculative-config).",
            flush=True,
        )
        sys.exit(1)
    say_odd(script)
    if script.hang_null_draft and int((args.speculative_config or {}).get("prompt_lookup_min") or 0) >= _LONG_LOOKUP:
        log("Loading for ever...", source="core.py:1", process="EngineCore")
        time.sleep(_CHILD_SECONDS)
    lines = startup_lines(args, script.version)
    for i, line in enumerate(lines):
        if script.die_at == "load" and i == len(lines) // 2:
            log("EngineCore failed to start.", source="core.py:1234", level="ERROR", process="EngineCore")
            log("torch.OutOfMemoryError: out of memory", source="core.py:1234", level="ERROR", process="EngineCore")
            print(  # noqa: T201 - the log
                "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
                flush=True,
            )
            sys.exit(script.exit_code)
        log(line.text, source=line.source, level=line.level, process=line.process)
        if not script.load_silent:
            time.sleep(script.load_seconds / len(lines))
        elif i == len(lines) // 2:
            time.sleep(script.load_seconds)


def say_odd(script: Script) -> None:
    """Print what a reader of logs must bear."""
    if script.odd_log:
        sys.stdout.buffer.write(b"\xff\xfe caf\xe9 \x00\x1b[31m red\x1b[0m\r\n\n" + b"x" * 100_000 + b"\n")
        sys.stdout.buffer.flush()
        log("error_rate=0.0, errors=0: no Error was seen, CUDA out of memory protection is on", source="stats.py:1")
    for number in range(script.chatter):
        print(f"chatter {number}", flush=True)  # noqa: T201 - the log


def map_shared_memory(script: Script) -> "mmap.mmap | None":
    """Map a new file of /dev/shm; it stays when the process ends."""
    if not script.shm_mib:
        return None
    path = Path(f"/dev/shm/psm_{os.urandom(4).hex()}")
    path.write_bytes(b"x" * (script.shm_mib * 2**20))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def notify_ready() -> None:
    """Tell systemd that the service is ready (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.sendto(b"READY=1", address.replace("@", "\0", 1) if address.startswith("@") else address)


def spawn_children(script: Script) -> list["subprocess.Popen[bytes]"]:
    """Start the child processes of the script; each logs its pid. They are not ended with the server."""
    sleep = f"import time; time.sleep({_CHILD_SECONDS})"
    children = []
    for own_session, stubborn, count in (
        (False, False, script.spawn_children),
        (True, False, script.detached_children),
        (False, True, script.stubborn_children),
    ):
        for _ in range(count):
            # A child inherits that a signal is ignored, so it survives SIGTERM from its first moment on.
            before = signal.signal(signal.SIGTERM, signal.SIG_IGN if stubborn else signal.SIG_DFL)
            child = subprocess.Popen([sys.executable, "-S", "-c", sleep, "VLLM::Worker"], start_new_session=own_session)
            signal.signal(signal.SIGTERM, before)
            children.append(child)
            log("Worker started", source="multiproc_executor.py:153", process="Worker", pid=child.pid)
    return children
