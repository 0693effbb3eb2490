"""From what a person named to what is examined: reads files and servers, changes nothing."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from draftworth.bench.base import Access
from draftworth.engines import engine as engine_named
from draftworth.engines.base import Engine, Planned
from draftworth.errors import DraftworthError, UsageError
from draftworth.findings import Code, Finding, find
from draftworth.readings.base import Reading
from draftworth.readings.file import read_file
from draftworth.readings.log import read_log
from draftworth.readings.server import find_server, read_server
from draftworth.trials.config import SystemdTrial, TrialConfig
from draftworth.trials.load import AnyTrial, load
from draftworth.trials.planned import planned_arms

OnBlock = Callable[[int], None]


@dataclass(slots=True)
class Gathered:
    """What an examination starts from.

    Attributes:
        source: what was named.
        readings: what was read.
        arms: what is planned.
        engine: the engine's name; None while nothing has told it.
        versions: where a version is from, and what it says.
        findings: what was remarked.
    """

    source: str
    readings: list[Reading] = field(default_factory=list)
    arms: list[Planned] = field(default_factory=list)
    engine: str | None = None
    versions: list[tuple[str, str | None]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def add(self, reading: Reading, where: str) -> None:
        """Add what was read. Raises UsageError where it is of another engine than the rest."""
        if self.engine is not None and reading.engine != self.engine:
            raise UsageError(
                f"{reading.source} is of {reading.title}, not of {engine_named(self.engine).title}: name what belongs "
                f'together, or set service.engine = "{reading.engine}" in the trial\'s file'
            )
        self.engine = reading.engine
        self.readings.append(reading)
        self.versions.append((where, reading.version))

    def adapter(self) -> Engine:
        """Return the engine. Raises UsageError where nothing told which."""
        if self.engine is None:
            raise UsageError(f"{self.source}: nothing tells which engine it is; say it with --engine")
        return engine_named(self.engine)


def gather_url(gathered: Gathered, url: str, access: Access) -> None:
    """Add a live server."""
    gathered.add(read_server(find_server(url, access=access, name=gathered.engine)), "the server")


def gather_file(gathered: Gathered, path: Path | None, on_block: OnBlock | None = None) -> None:
    """Add a log, a saved page or JSON."""
    gathered.add(read_file(path, name=gathered.engine, on_block=on_block), "the file")


def gather_log(gathered: Gathered, path: Path, on_block: OnBlock | None = None) -> None:
    """Add a server's log."""
    gathered.add(read_log(path, name=gathered.engine, on_block=on_block), "the log")


def gather_trial(gathered: Gathered, path: Path, *, access: Access | None = None, look: bool = True) -> None:
    """Add a trial's file: its arms, and its service where it runs.

    Args:
        gathered: what is added to.
        path: the trial's file.
        access: what lets the reader in; None to take what the file says.
        look: whether its server is read too.

    Raises:
        UsageError: the file is wrong, or of another engine.
    """
    config = load(path)
    named = config.service.engine
    if gathered.engine is not None and named is not None and named != gathered.engine:
        raise UsageError(
            f"{path} is of {engine_named(named).title}, not of {engine_named(gathered.engine).title}: set "
            f'service.engine = "{gathered.engine}" in it'
        )
    gathered.engine = gathered.engine if named is None else named
    if isinstance(config, TrialConfig):
        adapter = engine_named(config.service.engine)
        service = config.service
        speculates = adapter.speculation_in(service.command, service.env)
        command = service.command if speculates else adapter.without_placeholder(service.command)
        gathered.arms += planned_arms(config, command)
        if config.service.command:
            version = adapter.version_of(config.service.command, config.service.env)
            gathered.versions.append(("the command", version))
    if look:
        _look(gathered, config, access)


def _look(gathered: Gathered, config: AnyTrial, access: Access | None) -> None:
    from draftworth.trials.ask import access_of  # noqa: PLC0415 - lazy: reads the environment

    if isinstance(config, SystemdTrial):
        # What its unit says is known on its machine alone; there the plan shows the same doubts.
        known = config.service.url is not None or (config.service.port and not config.service.host)
        urls = [config.url] if known else []
    elif isinstance(config, TrialConfig):
        urls = [config.url]
    else:
        urls = [config.service.baseline, *(arm.url for arm in config.arms)]
    for url in urls:
        try:
            live = find_server(url, access=access or access_of(config.service))
        except DraftworthError as error:
            gathered.findings.append(find(Code.NOT_READ, f"nothing was read from {url}: {error}"))
        else:
            gathered.add(read_server(live), "the server")


def distinct(arms: Sequence[Planned]) -> list[Planned]:
    """Return arms without those named twice in the same way."""
    found: list[Planned] = []
    for arm in arms:
        if arm not in found:
            found.append(arm)
    return found


def arms_from_text(texts: Sequence[str]) -> list[Planned]:
    """Return arms given as JSON on the command line.

    Raises:
        UsageError: one is no JSON object.
    """
    arms = []
    for number, text in enumerate(texts, 1):
        try:
            config = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"--arm: no JSON ({error}); write e.g. {_EXAMPLE}") from None
        if not isinstance(config, dict):
            raise UsageError(f"--arm: must be a JSON object, e.g. {_EXAMPLE}")
        arms.append(Planned(name="planned" if len(texts) == 1 else f"planned {number}", speculation=config))
    return arms


_EXAMPLE = """'{"method": "ngram", "num_speculative_tokens": 5}'"""
