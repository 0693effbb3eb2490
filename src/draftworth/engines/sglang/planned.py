"""One planned arm as SGLang will see it: its flags over what is known of the server."""

from typing import Any

from draftworth.engines.base import Planned, StartupFacts
from draftworth.engines.sglang import flags, releases
from draftworth.engines.sglang.command import named, own_words

_LARGEST = 1e9  # also keeps what is no finite number out


class Arm:
    """Answers what an arm asks for.

    Attributes:
        version: SGLang's version as it is written, None where it is not known.
        release: its numbers.
        speculation: the speculative configuration with SGLang's names, without `speculative_`; None for none.
        algorithm: in capitals; empty for none.
        sampling: parameters that requests will set.
        env: the arm's environment.
        command_known: whether the whole command is known, so that a flag that is not there is not given.
        has_config: whether the server's effective configuration is known.
    """

    def __init__(self, arm: Planned, facts: StartupFacts) -> None:
        self.version = facts.version
        self.release = releases.number(facts.version)
        self.speculation: dict[str, Any] | None = None if arm.speculation is None else named(arm.speculation)
        self.algorithm = str((self.speculation or {}).get("algorithm", "")).upper()
        self.sampling = arm.sampling
        self.env = arm.env
        own = [list(words) for words in own_words(arm.command)]
        asked = flags.options([word for words in own for word in words]) | flags.options(arm.args)
        self._asked = {name.replace("-", "_"): value for name, value in asked.items()}
        self.command_known = bool(own) and "config" not in self._asked  # a file of settings may hold any flag
        self._config = facts.config
        self.has_config = bool(facts.config)

    def asked(self, *names: str) -> str | None:
        """Return a flag's value as the arm gives it; None where it does not."""
        return next((self._asked[name] for name in names if name in self._asked), None)

    def text(self, *names: str) -> str | None:
        """Return a setting as the arm gives it, or else as the server has it; None where neither tells."""
        found = self.asked(*names)
        if found is None:
            found = next((self._config[name] for name in names if name in self._config), None)
        return None if found in ("None", "null", "", "[]", "{}") else found

    def is_on(self, name: str) -> bool:
        """Tell whether a switch is on."""
        return self.text(name) in ("True", "true", "1")

    def number(self, *names: str) -> int | None:
        """Return a setting that is a whole number, or None."""
        found = self.text(*names) or ""
        return int(found) if found.isdecimal() and len(found) <= 9 else None  # noqa: PLR2004 - digits

    def setting(self, key: str) -> float | None:
        """Return a number of the speculative configuration, or None."""
        value = (self.speculation or {}).get(key)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                return None
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) <= _LARGEST:
            return None
        return float(value)

    def whole(self, key: str) -> int | None:
        """Return a whole number of the speculative configuration, or None."""
        value = self.setting(key)
        return int(value) if value is not None and value == int(value) else None

    @property
    def dp_attention(self) -> bool:
        """Whether attention is data parallel."""
        several = self.number("attn_dp_size")
        return self.is_on("enable_dp_attention") or (several is not None and several > 1)
