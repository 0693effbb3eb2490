"""The `[service]` of a trial's file: how it is run, where it answers, and how to be let in."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from draftworth import redact
from draftworth.models import FilePath, Strict, Words

EngineName = Literal["vllm", "sglang", "llamacpp", "trtllm"]
"""The engines there are, as `engines.CHOICES` lists them."""
_SECRET = re.compile(r"(?i)key|token|secret|auth|cookie|passw|cred")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OBEYED = re.compile(r"(?:LD_|PYTHON|DRAFTWORTH_|MALLOC_|BASH_|GIT_|SSL_)|(?:PATH|HOME|IFS|ENV|SHELL|GCONV_PATH|LANG)$")


def key_variable(name: str) -> str:
    """Return the name of a variable that may hold a key.

    Raises:
        ValueError: it is none, or one that programs obey: its value would be given to a driver that is root's.
    """
    if not _VARIABLE.fullmatch(name) or _OBEYED.match(name):
        raise ValueError(f"{name!r} cannot be the name of a variable that holds a key; choose one like MY_SERVER_KEY")
    return name


class AccessConfig(Strict):
    """How to be let in. Values are read from the environment when they are needed and are in no record."""

    api_key_env: str | None = None
    """The environment variable that holds the server's API key, sent as `Authorization: Bearer …`."""
    headers: dict[str, str] = {}
    """Further headers of every request. They are in the record: a secret belongs into `headers_env`."""
    headers_env: dict[str, str] = {}
    """Further headers whose values are in environment variables: header to variable."""
    ca_file: FilePath | None = None
    """A PEM file with the authorities to believe for https, where the server's certificate is from a private one;
    relative to this file."""

    @field_validator("api_key_env")
    @classmethod
    def _names_a_key(cls, value: str | None) -> str | None:
        return None if value is None else key_variable(value)

    @field_validator("headers_env")
    @classmethod
    def _name_keys(cls, value: dict[str, str]) -> dict[str, str]:
        return {header: key_variable(name) for header, name in value.items()}

    @field_validator("headers")
    @classmethod
    def _no_secrets(cls, value: dict[str, str]) -> dict[str, str]:
        secret = next((n for n, text in value.items() if _SECRET.search(n) or redact.text(text) != text), None)
        if secret:
            raise ValueError(
                f'{secret} sounds like a secret; write headers_env = {{ {secret} = "VARIABLE" }} and export VARIABLE'
            )
        return value


class ServiceConfig(AccessConfig):
    """The service the trial is about: how it is started, and where it answers."""

    type: Literal["process", "systemd"] = "process"
    """How the service is run: `process`, a command that Draftworth starts and stops itself; `systemd`, a unit of this
    or another machine (see docs/systemd.md); or `endpoints`, servers that run already (see docs/endpoints.md). The
    fields of the three differ."""
    engine: EngineName = "vllm"
    """Which engine the command starts: `vllm`, `sglang`, `llamacpp` or `trtllm`."""
    command: Annotated[Words, Field(min_length=1)]
    """The command that serves the baseline, one string an argument, without any speculative flag. Where the engine's
    flags cannot simply be appended (a wrapper script), write the word `{speculative_args}` where they belong."""
    cwd: FilePath | None = None
    """The folder the command runs in; relative to this file. Default: this file's folder."""
    env: dict[str, str] = {}
    """Environment variables added to Draftworth's own for every arm."""
    host: str = "127.0.0.1"
    """The address the server listens on, as this machine reaches it."""
    port: Annotated[int, Field(ge=1, le=65535)]
    """The port the server listens on; must be the one the command says."""
    url: str | None = None
    """Where it answers, where that is not `http://host:port`: with https, or a base path in front of `/v1`."""
    model: str | None = None
    """The served model's name. Default: the first name the server lists."""

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        return None if value is None else plain_url(value)

    @property
    def listens_at(self) -> str:
        """The address the server listens on, as this machine reaches it."""
        return self.host


class SystemdConfig(ServiceConfig):
    """The systemd service the trial is about, on this machine or on one that SSH reaches."""

    type: Literal["systemd"] = "systemd"
    """How the service is run: `systemd`."""
    unit: Annotated[str, Field(min_length=1)]
    """The unit that serves, as `systemctl status` names it; `.service` may be left out."""
    host: str = ""
    """The machine it runs on: an alias or a `user@name` that `ssh` knows. Empty: this machine. The trial is driven, and
    its journal kept, on that machine, where Draftworth has to be installed (`draftworth host check ALIAS`)."""
    draftworth: str = "draftworth"
    """The program on that machine, where it is not on the PATH of a command run over SSH."""
    sudo: bool = False
    """Become root there with `sudo -n`, where the SSH login is not root's."""
    way: Literal["auto", "parallel", "drop-in"] = "auto"
    """How a variant is run: `parallel`, a unit of its own in /run that conflicts with the original; `drop-in`, the same
    unit with another ExecStart from a drop-in in /run; `auto`: by rule, shown in the plan."""
    append_args: bool = False
    """The unit's program is a script of your own that passes its arguments on to the engine (`exec … "$@"`): flags are
    put at the end of its command line."""
    address: str = "127.0.0.1"
    """The address the server listens on, as the machine itself reaches it."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """The port the server listens on. Default: what the unit's command says."""
    command: Words = ()
    """Comes from the unit."""

    @field_validator("host")
    @classmethod
    def _is_alias(cls, value: str) -> str:
        if value.startswith("-") or any(char.isspace() for char in value):
            raise ValueError("must be a host's name or alias as `ssh` takes it")
        return value

    @field_validator("unit")
    @classmethod
    def _is_unit(cls, value: str) -> str:
        if "/" in value or value.startswith("-") or any(char.isspace() for char in value):
            raise ValueError("must be the name of a unit, as `systemctl status` shows it")
        return value if "." in value and value.rpartition(".")[2] in _UNIT_KINDS else f"{value}.service"

    @property
    def listens_at(self) -> str:
        """The address the server listens on, as its machine reaches it."""
        return self.address


FROM_THE_UNIT = frozenset({"command", "cwd", "env"})
"""Fields of a service that a systemd unit says itself."""
_UNIT_KINDS = frozenset(
    {"service", "socket", "target", "timer", "path", "mount", "automount", "swap", "slice", "scope", "device"}
)


def plain_url(value: str) -> str:
    """Return a server's URL without `/v1` and a slash at its end.

    Raises:
        ValueError: it is none.
    """
    url = value.strip().rstrip("/").removesuffix("/v1").rstrip("/")
    if not url.startswith(("http://", "https://")) or url.count("/") < 2 or url.endswith(":/"):  # noqa: PLR2004 - ://
        raise ValueError("must be a URL like http://host:8000 or https://host/base")
    if "?" in url or "#" in url:
        raise ValueError("must be a URL without a query")
    if "@" in url.split("/")[2]:
        raise ValueError("must not hold a password; put the key into an environment variable and name it")
    return url
