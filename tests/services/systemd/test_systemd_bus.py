"""Reading units over D-Bus, from a real systemd."""

import json

import pytest
from tests.real.private_systemd import PrivateSystemd

from draftworth.hosts.base import CommandResult, HostError
from draftworth.services.systemd import bus
from draftworth.services.systemd.bus import BusError, ExecCommand

# What systemd 252 itself was seen to call the prefixes of systemd.service(5).
PREFIXES = [
    ("-", ("ignore-failure",)),
    (":", ("no-env-expand",)),
    ("+", ("privileged",)),
    ("!", ("no-setuid",)),
    ("!!", ("ambient",)),
    ("-:!!", ("ignore-failure", "ambient", "no-env-expand")),
]


class Saying:
    """A host whose every command ends in the same way."""

    name = "gpu1"

    def __init__(self, code: int, err: str = "", out: str = "") -> None:
        self._result = (code, out.encode(), err.encode())

    def run(self, argv: object, *, stdin: bytes | None = None, timeout_s: float = 60.0) -> CommandResult:
        return CommandResult((), *self._result)

    def read(self, path: str) -> bytes | None:
        return None

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        raise AssertionError

    def remove(self, path: str) -> bool:
        raise AssertionError


def test_object_paths_are_those_systemd_gives(module_systemd: PrivateSystemd) -> None:
    host = module_systemd.host()
    for unit in ("a.service", "1a.service", "a-b@c\\x2dd.service", "x_y:z.service"):
        (given,) = bus.call(host, bus.MANAGER_PATH, bus.MANAGER, "LoadUnit", "s", unit)
        assert bus.object_path(unit) == given


@pytest.mark.parametrize(("prefix", "flags"), PREFIXES)
def test_prefixes_have_these_names(module_systemd: PrivateSystemd, prefix: str, flags: tuple[str, ...]) -> None:
    module_systemd.write_unit("flags.service", f"[Service]\nExecStart={prefix}/bin/sleep 60\n")
    module_systemd.systemctl("daemon-reload")
    found = bus.properties(module_systemd.host(), "flags.service")
    assert bus.exec_commands(found) == (ExecCommand(path="/bin/sleep", argv=("/bin/sleep", "60"), flags=flags),)


def test_words_are_those_of_systemd_not_of_a_shell(module_systemd: PrivateSystemd) -> None:
    module_systemd.write_unit(
        "words.service",
        "[Service]\n"
        "ExecStart=/bin/false\n"
        "ExecStart=\n"
        'ExecStart=@/bin/sleep other-name "q\\tz" \\\n'
        "# a comment in between\n"
        "  \\x41 %%h %n $A ${B} $$ 'a b' \\;\n",
    )
    module_systemd.systemctl("daemon-reload")
    found = bus.properties(module_systemd.host(), "words.service")
    assert bus.exec_commands(found) == (
        ExecCommand(
            path="/bin/sleep",
            argv=("other-name", "q\tz", "A", "%h", "words.service", "$A", "${B}", "$$", "a b", ";"),
        ),
    )


def test_every_interface_and_a_unit_that_is_not_loaded(module_systemd: PrivateSystemd) -> None:
    host = module_systemd.host()
    found = bus.properties(host, "not-there.service")
    assert (found["LoadState"], found["ActiveState"]) == ("not-found", "inactive")
    assert {"Id", "MainPID", "ExecStartEx", "InvocationID"} <= found.keys()
    assert bus.property(host, "not-there.service", bus.UNIT, "LoadState") == "not-found"
    with pytest.raises(BusError, match="NoSuch"):
        bus.property(host, "not-there.service", bus.UNIT, "NoSuch")


def test_states_of_several_units_in_the_order_asked(module_systemd: PrivateSystemd) -> None:
    module_systemd.write_unit("up.service", "[Service]\nExecStart=/bin/sleep 60\n")
    module_systemd.systemctl("daemon-reload")
    module_systemd.systemctl("start", "up.service")
    found = bus.states(module_systemd.host(), ["gone.service", "up.service", "multi-user.target"])
    assert [(one.name, one.load, one.active, one.sub) for one in found] == [
        ("gone.service", "not-found", "inactive", "dead"),
        ("up.service", "loaded", "active", "running"),
        ("multi-user.target", "loaded", "active", "active"),
    ]
    assert found[1].file_state == "static"
    assert bus.states(module_systemd.host(), []) == ()


def test_another_user_is_told_to_be_root(module_systemd: PrivateSystemd) -> None:
    class Nobody(type(module_systemd.host())):  # type: ignore[misc]
        def run(self, argv: list[str], **more: object) -> CommandResult:
            result: CommandResult = super().run(["setpriv", "--reuid=65534", "--clear-groups", *argv], **more)
            return result

    host = Nobody(module_systemd)
    assert bus.properties(host, "up.service")["Id"] == "up.service"
    with pytest.raises(BusError, match="run it as root") as caught:
        bus.call(host, bus.object_path("up.service"), bus.UNIT, "Stop", "s", "replace")
    assert caught.value.denied


def test_bytes_that_are_not_utf8_are_said(module_systemd: PrivateSystemd) -> None:
    module_systemd.write_unit("bytes.service", '[Service]\nExecStart=/bin/sleep "\\xff"\n')
    module_systemd.systemctl("daemon-reload")
    with pytest.raises(BusError, match=r"bytes\.service.*not UTF-8"):
        bus.properties(module_systemd.host(), "bytes.service")


@pytest.mark.parametrize(
    ("code", "err", "said"),
    [
        (127, "sh: busctl: not found", "no busctl on gpu1"),
        (1, "Failed to connect to bus: No such file or directory", "D-Bus does not answer on gpu1"),
        (1, "System has not been booted with systemd as init system (PID 1). Can't operate.", "not the init system"),
        (1, "Call failed: Interactive authentication required.", "run it as root"),
        (1, "Call failed: Connection timed out", "did not do GetAll: Call failed: Connection timed out"),
    ],
)
def test_what_is_wrong_with_the_host_is_said_in_a_line(code: int, err: str, said: str) -> None:
    with pytest.raises(HostError, match="gpu1") as caught:
        bus.properties(Saying(code, err), "x.service")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("out", ["no json", "[]", '{"type": "s"}', json.dumps({"data": 3})])
def test_an_answer_that_cannot_be_read_is_no_crash(out: str) -> None:
    with pytest.raises(BusError):
        bus.properties(Saying(0, out=out), "x.service")
