"""One planned arm as one release of vLLM would see it, and what a rule remarks about it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from draftworth.engines.base import Planned, StartupFacts
from draftworth.engines.shown import shortened
from draftworth.engines.vllm import flags as spelling
from draftworth.engines.vllm import planned_flags, releases
from draftworth.engines.vllm.releases import METHODS, Release

Severity = Literal["refused", "unknown", "changed", "costs", "note"]

EAGLE_LIKE = frozenset({"eagle", "eagle3", "mtp", "dflash", "extract_hidden_states"})
"""What later releases call EagleModelTypes, every `…_mtp` being `mtp`."""
_LAST_V0 = (0, 10, 2)
_DASHES_FROM = (0, 28, 0)
_LONGEST = 80  # characters of a value in a sentence
_SUFFIX_DEPTH = 24  # suffix_decoding_max_tree_depth where nobody sets it: the default of num_speculative_tokens


@dataclass(frozen=True, slots=True)
class Remark:
    """What a rule says; `doubts.py` adds the releases it holds for.

    Attributes:
        code: stable name.
        severity: as of a `Doubt`.
        what: one sentence.
        fix: what to do.
        subject: tells several remarks of one code apart; the key or flag.
    """

    code: str
    severity: Severity
    what: str
    fix: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """A planned arm at one release.

    Attributes:
        release: one of `releases.READ`.
        config: the speculative configuration, of the arm or of its flags; None where it does not speculate.
        flags: every flag of the command and of the arm's further arguments.
        variables: the `VLLM_…` variables the arm sets.
        sampling: sampling parameters that requests will set.
        told: the running server's configuration.
        told_runner: the runner it told.
        told_speculating: whether it speculates.
        whole_command: the command is known, so what it does not set has its default.
        twice: how the command speculates by itself although the arm brings a configuration.
    """

    release: Release
    config: Mapping[str, Any] | None
    flags: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    sampling: frozenset[str] = frozenset()
    told: Mapping[str, str] = field(default_factory=dict)
    told_runner: str | None = None
    told_speculating: bool | None = None
    whole_command: bool = False
    twice: str | None = None

    def since(self, version: str) -> bool:
        """Whether this release is at or after a version."""
        return self.release >= tuple(int(part) for part in version.split("."))

    @property
    def speculates(self) -> bool:
        """Whether the arm has a speculative configuration."""
        return self.config is not None

    def key(self, name: str) -> Any:
        """Return a key of the speculative configuration, None where it is not set."""
        return (self.config or {}).get(name)

    @property
    def method(self) -> str | None:
        """The method as written, `ngram` for a model of that name, None where the draft's files decide."""
        method = self.key("method")
        if isinstance(method, str) and method:
            return method
        return "ngram" if self.key("model") in ("ngram", "[ngram]") else None

    @property
    def kind(self) -> str | None:
        """The method with every `…_mtp` as `mtp`; None where this release does not know it."""
        method = self.method
        known = METHODS.get(method or "")
        if method is None or known is None or not known.at(self.release):
            return None
        return "mtp" if method.endswith("mtp") else method

    @property
    def tokens(self) -> int | None:
        """Most tokens drafted a step, where the arm says so."""
        tokens = planned_flags.whole(self.key("num_speculative_tokens"))
        if tokens is None and self.method == "suffix":
            return planned_flags.whole(self.key("suffix_decoding_max_tree_depth")) or _SUFFIX_DEPTH
        return tokens

    def setting(self, name: str) -> str | None:
        """Return a setting of the arm's command, else as the running server printed it, else None."""
        if name in self.flags:
            return self.flags[name]
        return self.told.get(f"args.{name}", self.told.get(name))

    def number(self, name: str) -> int | None:
        """Return a setting that is a whole number, else None."""
        return planned_flags.whole(self.setting(name))

    def on(self, name: str) -> bool:
        """Whether a switch is on for certain."""
        return f"no_{name}" not in self.flags and planned_flags.truth(self.setting(name)) is True

    @property
    def engine_v0(self) -> bool:
        """Whether this release would run the arm on its V0 engine: asked for, or because V1 does not take the method.

        0.8.5 and 0.9.2 (`engine/arg_utils.py`, `_is_v1_supported_oracle`).
        """
        asked = self.variables.get("VLLM_USE_V1")
        if self.release > _LAST_V0 or asked == "1":
            return False
        return asked == "0" or self.falls_back

    @property
    def falls_back(self) -> bool:
        """Whether this release takes its V0 engine for this method unless VLLM_USE_V1=1 is set."""
        if not self.speculates or self.since("0.10.1.1"):
            return False
        on_v1 = ("ngram", "eagle", "eagle3", "mtp", "medusa") if self.since("0.9.2") else ()
        return self.kind not in on_v1

    @property
    def runner(self) -> str | None:
        """`V1` or `V2`, as the arm's environment, the release or the running server decide; None where unknown.

        What a method itself changes of it is `rules_runner.py`'s.
        """
        asked = planned_flags.truth(self.variables.get("VLLM_USE_V2_MODEL_RUNNER"))
        if asked is not None and self.since("0.14.1"):
            return "V2" if asked else "V1"
        if not self.since("0.24.0"):
            return "V1"
        if self.told_runner and not self.told_speculating:
            return self.told_runner
        if self.on_cpu:
            return "V1"
        return "V2" if self.since("0.29.0") else None

    @property
    def eager(self) -> bool:
        """Whether CUDA graphs are off for certain."""
        return self.on("enforce_eager") or self.on_cpu

    @property
    def on_cpu(self) -> bool:
        """Whether the running server told that it runs on a CPU."""
        return self.told.get("device_config") == "cpu"


Rule = Callable[[Case], Iterator[Remark]]


def cases(arm: Planned, facts: StartupFacts) -> tuple[Case, ...]:
    """Return the arm at each of the releases that were read, oldest first."""
    flags = planned_flags.read_flags(arm.command, arm.args)
    config: Mapping[str, Any] | None = arm.speculation
    if config is None:
        config = planned_flags.speculative_config(flags)
    words = [*arm.command, *arm.args]
    return tuple(
        Case(
            release=release,
            config=_as_read(config, release),
            flags=flags,
            variables=planned_flags.variables(words, arm.env),
            sampling=arm.sampling,
            told=facts.config,
            told_runner=facts.runner,
            told_speculating=facts.speculating,
            whole_command=bool(arm.command),
            twice=None if arm.speculation is None else _speculates(arm),
        )
        for release in releases.READ
    )


def _as_read(config: Mapping[str, Any] | None, release: Release) -> Mapping[str, Any] | None:
    """Return the configuration with dashes in keys as underscores, where the release does that (0.28.0 and later)."""
    if config is None or release < _DASHES_FROM:
        return config
    return {key.replace("-", "_"): value for key, value in config.items()}


def _speculates(arm: Planned) -> str | None:
    return spelling.speculation_in(arm.command, arm.env) or spelling.speculation_in(["vllm", "serve", *arm.args], {})


def short(value: object) -> str:
    """Return a value as it can stand in a sentence."""
    return shortened(str(value), _LONGEST)
