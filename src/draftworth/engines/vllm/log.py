"""Reads the log of a starting vLLM server as it grows.

What is not logged is not known: at VLLM_LOGGING_LEVEL=WARNING neither version, configuration nor runner appear. The V2
runner says `Using V2 Model Runner`; the V1 runner says why it was chosen, or, with VLLM_USE_V2_MODEL_RUNNER=0, only
shows by the file name `gpu_model_runner.py` beside `Starting to load model` (V2 has no such line).
"""

import re

from draftworth import redact
from draftworth.engines.base import LogWarning, StartupFacts
from draftworth.engines.phases import Phase
from draftworth.engines.vllm import config_text, log_lines, phases
from draftworth.engines.vllm.log_warnings import warning_in

_LONGEST = 1 << 20  # characters of one line that are kept
_ENDS = re.compile(r"[\r\n]+")
_ENGINE = re.compile(
    r"Initializing an? (?P<kind>V\d )?LLM engine \(v(?P<version>[^)]+)\) with config: (?P<config>.*)", re.DOTALL
)
_VERSION = re.compile(r"(?:.*█\s+|vLLM (?:API )?server )version v?(?P<version>\d[^\s,]*)")
_ARGUMENTS = re.compile(r"(?:non-default )?args: (?P<args>.*)", re.DOTALL)
_RUNNER = re.compile(r"(?P<v2>Using V2 Model Runner)|.*using the V1 model runner instead")
_V1_FILE = re.compile(r"(?:gpu|cpu|xpu|tpu|hpu)_model_runner\.py")
_KV_TOKENS = re.compile(r"(?:\w+ )?KV cache size: (?P<tokens>[\d,]+) tokens")

_FIGURES = re.compile(
    r"(?:Engine \d+: )?Avg prompt throughput|(?:SpecDecoding|Speculative|DiffusionDecoding) metrics: "
)
_BANNER_LINES = 8
"""Most lines between the two lines with a version that one start can begin with."""
_SECRET = re.compile(
    r"(?:api|access|secret|private|account|auth|encryption)[._-]?keys?(?:[._-]?id)?$|passw(?:or)?d$|passphrase$"
    r"|secret$|credentials?$|authorization$"
    r"|(?:auth|access|api|bearer|session|refresh|secret|security|hf|sas)[._-]?token$|(?:^|\.)token$",
    re.IGNORECASE,
)


def _without_secrets(config: dict[str, str]) -> dict[str, str]:
    """Hide the values vLLM prints of keys, tokens and passwords: configurations are stored and shown."""
    return {
        key: redact.HIDDEN if _SECRET.search(key) and value != "None" else redact.text(value)
        for key, value in config.items()
    }


class VLLMLogReader:
    """Takes a log in pieces of any size; the facts do not depend on where the pieces end.

    The configuration holds three groups of keys: those of the engine's own line as printed, `args.…` for the arguments
    that were not left at their defaults, and `kv_cache_tokens`.

    A log that is appended to holds several starts; the facts are those of the last. A start begins at vLLM's version
    banner, or, where the log level hid it, with the arguments or the configuration of an engine after one that served.
    A second line of the same version is the same start only where next to nothing, and no figures, came in between.
    """

    def __init__(self) -> None:
        self.starts = 0
        self._pending = ""
        self._forget()

    def _forget(self) -> None:
        """Begin a start."""
        self._banner = False
        self._lines = 0
        self._figures = False
        self._phase = Phase(0, phases.FIRST)
        self._shown = phases.FIRST
        self._version: str | None = None
        self._runner: str | None = None
        self._v1_file = False
        self._speculating: bool | None = None
        self._config: dict[str, str] = {}
        self._warnings: dict[tuple[str, str], LogWarning] = {}

    def feed(self, text: str) -> None:
        """Take the next piece of the log; it may end in the middle of a line. Never raises on odd text."""
        # Progress bars end their lines with \\r, vLLM breaks messages with \\r\\n.
        *lines, rest = _ENDS.split(self._pending + text)
        self._pending = rest[:_LONGEST]
        for line in lines:
            if line:
                self._take(log_lines.parse(line[:_LONGEST]))

    def facts(self) -> StartupFacts:
        """Everything told so far."""
        shown = self._shown
        if self._pending:  # a progress bar ends its line only when it is drawn again
            shown = self._phase_after(log_lines.parse(self._pending).message)[1]
        return StartupFacts(
            phase=shown,
            version=self._version,
            runner=self._runner or ("V1" if self._v1_file else None),
            device=self._config.get("device_config") or None,
            speculating=self._speculating,
            config=dict(self._config),
            warnings=tuple(self._warnings.values()),
        )

    def _phase_after(self, message: str) -> tuple[Phase, str]:
        found = phases.phase_of(message)
        if found and found[0].stage >= self._phase.stage:
            return found
        return self._phase, self._shown

    def _take(self, line: log_lines.Line) -> None:
        message = line.message
        if self._begins_a_start(message):
            # A start may print both a banner and its version, close to each other.
            said = _VERSION.match(message)
            again = self._banner and self._phase.stage <= 1 and said and said["version"] == self._version
            again = again and not self._figures and self._lines <= _BANNER_LINES
            self.starts += not again
            self._forget()
        self._lines += 1
        self._figures = self._figures or bool(_FIGURES.match(message))
        self._phase, self._shown = self._phase_after(message)
        warning = warning_in(line)
        if warning:
            self._warnings.setdefault((warning.code, warning.line), warning)
        if runner := _RUNNER.match(message):
            self._runner = "V2" if runner["v2"] else "V1"
        if message.startswith("Starting to load model") and _V1_FILE.fullmatch(line.file or ""):
            self._v1_file = True
        if tokens := _KV_TOKENS.match(message):
            self._config["kv_cache_tokens"] = tokens["tokens"].replace(",", "")
        if version := _VERSION.match(message):
            self._version, self._banner = version["version"], True
        if arguments := _ARGUMENTS.match(message):
            self._config |= _without_secrets(config_text.flat(arguments["args"], "args"))
        if engine := _ENGINE.match(message):
            self._engine(engine)

    def _begins_a_start(self, message: str) -> bool:
        if _VERSION.match(message):
            return True
        # A serving vLLM whose banner was seen may start more engines; its next start would show a banner again.
        served = self._phase.stage >= phases.SERVES and not self._banner
        return served and bool(_ARGUMENTS.match(message) or _ENGINE.match(message))

    def _engine(self, line: re.Match[str]) -> None:
        self._version = line["version"]
        found = _without_secrets(config_text.flat(line["config"]))
        self._config |= found
        names = [key for key in found if key == "speculative_config" or key.startswith("speculative_config.")]
        if names:
            self._speculating = names != ["speculative_config"] or found["speculative_config"] != "None"
