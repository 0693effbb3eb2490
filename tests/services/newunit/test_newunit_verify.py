"""What systemd-analyze says about a unit reaches the person, and nothing of other units does."""

import subprocess
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.services.newunit.engine import FakeEngine

from draftworth.errors import UsageError
from draftworth.hosts import host_for
from draftworth.hosts.base import CommandResult, HostError
from draftworth.services.newunit.base import Asked, NewUnit
from draftworth.services.newunit.make import make
from draftworth.services.newunit.steps import exec_step
from draftworth.services.newunit.verify import verify


class Told:
    """A host on which systemd-analyze says something."""

    name = "this machine"

    def __init__(self, *results: CommandResult | HostError) -> None:
        self.results = list(results)
        self.asked: list[Sequence[str]] = []

    def run(self, argv: Sequence[str], *, stdin: bytes | None = None, timeout_s: float = 60.0) -> CommandResult:
        self.asked.append(argv)
        result = self.results.pop(0)
        if isinstance(result, HostError):
            raise result
        return result

    def read(self, path: str) -> bytes | None:
        raise NotImplementedError

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        raise NotImplementedError

    def remove(self, path: str) -> bool:
        raise NotImplementedError


def unit_of(engine: FakeEngine) -> NewUnit:
    return make(Asked(command=engine.command, name="checked"), engine.machine(user="daemon", gpus=2))


def test_systemd_takes_the_unit_without_a_word(engine: FakeEngine) -> None:
    unit = verify(host_for(None), unit_of(engine))
    assert [check for check in unit.checks if "systemd-analyze" in check.text] == []
    assert not unit.failed


@pytest.mark.parametrize(
    ("line", "said"),
    [("Restart=sometimes", "sometimes"), ("NoSuchSetting=1", "NoSuchSetting"), ("ExecStart=relative/path", "relative")],
)
def test_what_systemd_does_not_take_fails(engine: FakeEngine, line: str, said: str) -> None:
    unit = unit_of(engine)
    spoilt = unit.model_copy(update={"text": unit.text.replace("[Install]", f"{line}\n[Install]")})
    found = verify(host_for(None), spoilt)
    assert found.failed
    assert any(said in check.text and "/tmp" not in check.text for check in found.checks if check.severity == "failed")


def test_an_older_systemd_is_asked_without_the_option_it_does_not_know(engine: FakeEngine) -> None:
    unknown = CommandResult((), 1, b"", b"systemd-analyze: unrecognized option '--recursive-errors=no'\n")
    host = Told(unknown, CommandResult((), 0, b"", b""))
    assert not verify(host, unit_of(engine)).failed
    assert [any("recursive" in word for word in words) for words in host.asked] == [True, False]


def test_without_systemd_analyze_nobody_checked_and_that_is_said(engine: FakeEngine) -> None:
    found = verify(Told(HostError("systemd-analyze could not be run: no such program")), unit_of(engine))
    assert not found.failed
    assert found.checks[-1].text.startswith("not checked by systemd-analyze verify: ")


def test_words_about_other_units_are_left_out(engine: FakeEngine) -> None:
    words = b"/lib/systemd/system/other.service:3: Unknown key\nchecked.service: odd\n"
    found = verify(Told(CommandResult((), 0, b"", words)), unit_of(engine))
    assert [check.text for check in found.checks if "analyze" in check.text] == [
        "systemd-analyze verify: checked.service: odd"
    ]


@settings(max_examples=200)
@given(st.lists(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x17F)).map(str.strip), min_size=1))
def test_a_step_never_breaks_out_of_its_quotes(lines: list[str]) -> None:
    # Undone as systemd does it: continuation lines joined, then quotes, then `%%` and `$$`.
    joined = "\n".join(exec_step("ExecStartPre", lines)).replace(" \\\n", " ").replace("\\\n", "")
    start, inside = joined.split("'", 1)
    assert start == "ExecStartPre=/bin/sh -c "
    assert inside.endswith("'")
    out, at = "", 0
    body = inside[:-1]
    while at < len(body):
        assert body[at] != "'"
        step = 2 if body[at] in "\\%$" else 1
        if step == 2:
            assert body[at + 1] in {"\\": "\\'", "%": "%", "$": "$"}[body[at]]
        out += body[at + step - 1]
        at += step
    assert out.split() == " ".join(lines).split()


def test_every_step_is_proper_shell(engine: FakeEngine) -> None:
    text = unit_of(engine).text
    for block in text.split("/bin/sh -c '")[1:]:
        script = block.split("'\n")[0].replace("\\\n", "\n")
        for written, plain in (("$$", "$"), ("%%", "%"), ("\\'", "'"), ("\\\\", "\\")):
            script = script.replace(written, plain)
        done = subprocess.run(["sh", "-n", "-c", " ".join(script.split("\n"))], capture_output=True, check=False)
        assert done.stderr == b""


def test_a_command_that_systemd_cannot_hold_is_said(engine: FakeEngine) -> None:
    with pytest.raises(UsageError, match="UTF-8"):
        make(Asked(command=(*engine.command, "\udcff"), name="x"), engine.machine())
