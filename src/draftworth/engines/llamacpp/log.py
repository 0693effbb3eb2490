"""Reads the log of a starting llama.cpp server as it grows.

At the usual verbosity of 3 a build since 9837 tells little: slots, context, threads, and whether it serves; neither its
number nor whether it speculates. `-lv 4` adds both, and each drafter with its parameters. Read in 9093, 9246, 9660,
9837, 10448 and 11434 (`common_params_print_info`, `load_model`, `llama_context`).

The device is told by the library's lines of loading (`load_tensors: offloaded 33/33 layers to GPU`, `load_tensors:
CUDA0 model buffer size = …`; `src/llama-model.cpp` of 11434): 9093 and 9113 log them at the usual verbosity, 9246 and
later at `-lv 4` only (`common_log_get_verbosity` of `common/log.cpp`).
"""

import re

from draftworth.engines.base import LogWarning, StartupFacts
from draftworth.engines.llamacpp import log_lines, releases
from draftworth.engines.llamacpp.log_warnings import SPECULATION_OFF, SYNTHETIC, warning_in

NEEDLES: tuple[bytes, ...] = (
    b"build_info: ",
    b"build: ",
    b"common_params_print_info: ",
    b"log_info: verbosity",
    b"system_info: n_threads",
    b"llama_server: initializing",
    b"initializing slots, n_slots",
    b"initializing, n_slots",
    b"loading model '",
    b"loading draft model '",
    b"threadpool init, n_threads",
    b"spec common_specu: ",
    b"peculative ",
    b"draft model ",
    b"llama_context: ",
    b"llama_kv_cache: size = ",
    b"model loaded",
    b"listening on ",
    b"it will be disabled",
    b"DEPRECATED: argument",
    b"training context of the model",
    b"free space in the KV cache",
    b"cleaning up before exit",
    b"synthetic acceptance",
    b"layers to GPU",
    b"model buffer size = ",
)

FIRST = "starting"
SERVING = "serving"
_LONGEST = 1 << 20  # characters of one line that are kept
_ENDS = re.compile(r"[\r\n]+")
_VERBOSITY = re.compile(r".*verbosity = (?P<level>\d+) \(adjust with")
_THREADS = re.compile(r".*system_info: n_threads = (?P<threads>\d+)(?: \(n_threads_batch = (?P<batch>\d+)\))?")
_POOL = re.compile(r".*threadpool init, n_threads = (?P<threads>\d+)")
_SLOTS = re.compile(r"initializing(?: slots)?, (?P<pairs>n_slots = .*)")
_PAIR = re.compile(r"(\w+) = '?([^,']*)'?")
_MODEL = re.compile(r".*loading (?P<draft>draft )?model '(?P<path>.*)'$")
_CONTEXT = re.compile(r"llama_context: (?P<key>[a-z_]+) += (?P<value>\S+)$")
_CACHE = re.compile(r"llama_kv_cache: size = .*, K \((?P<k>\w+)\): .*, V \((?P<v>\w+)\)")
_ADDING = re.compile(r".*adding speculative implementation '(?P<type>[\w-]+)'")
_PARAMETERS = re.compile(r"- (?P<pairs>(?:\w+=[^,]*)(?:, \w+=.*)?)$")
_PARAMETER = re.compile(r"(\w+)=(\[[^\]]*\]|[^,]*)")
_OFFLOADED = re.compile(r".*offloaded (?P<layers>\d+/\d+) layers to GPU")
_BUFFER = re.compile(r".*load_tensors: +(?P<kind>[A-Za-z]+)\S*(?<!_Host) model buffer size = ")
_OF_PROCESSOR = frozenset({"CPU", "AMX"})  # with what follows: CPU_Mapped, CPU_REPACK; CUDA_Host is its memory too
_SETTING_UP = 3
_CONTEXT_KEYS = frozenset({"n_ctx", "n_batch", "n_ubatch", "flash_attn", "kv_unified", "n_seq_max"})
_VERBOSE = 4
_PHASES: tuple[tuple[int, str, re.Pattern[str]], ...] = tuple(
    (stage, words, re.compile(pattern))
    for stage, words, pattern in (
        (5, "stopping", r".*cleaning up before exit"),
        (4, SERVING, r"(?:main: |\S+: )?(?:router )?(?:server is )?listening on "),
        (3, "setting up slots", r"initializing(?: slots)?, n_slots"),
        (2, "loading the draft", r".*loading draft model"),
        (2, "loading the model", r".*loading model|llama_model_loader: |load_tensors: "),
        (1, FIRST, r".*(?:initializing \.\.\.$|build_info: b|verbosity = \d)"),
    )
)


class LlamaLogReader:
    """Takes a log in pieces of any size; the facts do not depend on where the pieces end.

    The configuration holds `model`, what slots and context were given (`n_slots`, `n_ctx_slot`, `flash_attn`,
    `cache_type_k`, …), `n_threads`, `gpu_layers` (layers on a GPU, of all), and of speculation `speculative.type`,
    `speculative.draft_model` and each drafter's parameters as `speculative.<type>.n_max`.

    The device is the backend that holds the model's weights or a part of them: `cuda`, `vulkan`, `mtl`, `rocm`; `cpu`
    where no other holds any, which is told once all are loaded; None where the log does not tell.

    A log that is appended to holds several starts; the facts are those of the last.
    """

    def __init__(self) -> None:
        self.starts = 0
        self._pending = ""
        self._forget()

    def _forget(self) -> None:
        self._stage, self._shown = 0, FIRST
        self._version: str | None = None
        self._verbosity: int | None = None
        self._speculating: bool | None = None
        self._type: str | None = None
        self._buffers: list[str] = []
        self._config: dict[str, str] = {}
        self._warnings: dict[tuple[str, str], LogWarning] = {}

    def feed(self, text: str) -> None:
        """Take the next piece of the log; it may end in the middle of a line. Never raises on odd text."""
        *lines, rest = _ENDS.split(self._pending + text)
        self._pending = rest[:_LONGEST]
        for line in lines:
            if "draft acceptance" in line:
                self._speculating = True
            elif "eval time = " in line or "stop processing: " in line:
                continue  # nearly all of a long log, and nothing of a start
            elif line:
                self._take(log_lines.parse(line[:_LONGEST]))

    def facts(self) -> StartupFacts:
        """Everything told so far."""
        return StartupFacts(
            phase=self._shown,
            version=self._version,
            device=self._device(),
            speculating=self._speculating,
            config=dict(self._config),
            warnings=tuple(self._warnings.values()),
        )

    def _device(self) -> str | None:
        others = [kind for kind in self._buffers if kind not in _OF_PROCESSOR]
        if others:
            return others[0].lower()
        return "cpu" if self._buffers and self._stage >= _SETTING_UP else None

    def _take(self, line: log_lines.Line) -> None:
        message = line.message
        if log_lines.begins(message) and (self.starts == 0 or self._stage > 1):
            self.starts += 1
            self._forget()
        self._advance(message)
        self._about_speculation(line)
        self._about_configuration(message)
        self._about_device(message)
        warning = warning_in(line)
        if warning:
            self._warnings.setdefault((warning.code, warning.line), warning)
            if warning.code == SPECULATION_OFF:
                self._speculating = False
            elif warning.code == SYNTHETIC:
                self._speculating = True
                self._config["speculative.synthetic_acceptance"] = "configured"

    def _advance(self, message: str) -> None:
        for stage, words, pattern in _PHASES:
            if stage >= self._stage and pattern.match(message):
                self._stage, self._shown = stage, words
                break
        if self._shown == SERVING and self._speculating is None and (self._verbosity or 0) >= _VERBOSE:
            self._speculating = False  # at this verbosity a server that speculates has said so by now

    def _about_speculation(self, line: log_lines.Line) -> None:
        message = line.message
        if adding := _ADDING.match(message):
            self._type = adding["type"]
            known = self._config.get("speculative.type", "")
            if self._type not in known.split(","):
                self._config["speculative.type"] = f"{known},{self._type}".strip(",")
        elif line.who == "spec" and self._type and (parameters := _PARAMETERS.match(message)):
            for name, value in _PARAMETER.findall(parameters["pairs"]):
                self._config[f"speculative.{self._type}.{name}"] = value.strip()
        elif "speculative decoding context initialized" in message:
            self._speculating = True

    def _about_configuration(self, message: str) -> None:
        if build := log_lines.build_in(message):
            self._version = releases.named(build)
        if verbosity := _VERBOSITY.match(message):
            self._verbosity = int(verbosity["level"])
        if threads := _THREADS.match(message):
            self._config["n_threads"] = threads["threads"]
            if threads["batch"]:
                self._config["n_threads_batch"] = threads["batch"]
        elif pool := _POOL.match(message):
            self._config.setdefault("n_threads", pool["threads"])
        if slots := _SLOTS.match(message):
            self._config |= dict(_PAIR.findall(slots["pairs"]))
        if model := _MODEL.match(message):
            self._config["speculative.draft_model" if model["draft"] else "model"] = model["path"]
        if (context := _CONTEXT.match(message)) and context["key"] in _CONTEXT_KEYS:
            # A draft model's context comes after the target's.
            self._config.setdefault(context["key"], context["value"])
        if cache := _CACHE.match(message):
            self._config.setdefault("cache_type_k", cache["k"])
            self._config.setdefault("cache_type_v", cache["v"])

    def _about_device(self, message: str) -> None:
        if "speculative.draft_model" in self._config:
            return  # a draft is loaded after the target
        if offloaded := _OFFLOADED.match(message):
            self._config["gpu_layers"] = offloaded["layers"]
        elif buffer := _BUFFER.match(message):
            self._buffers.append(buffer["kind"])
