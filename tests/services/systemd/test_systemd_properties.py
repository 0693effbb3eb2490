"""What is compared of a unit, and what a trial may change, on a real systemd."""

import hashlib
import json
import time
from typing import Any

import pytest
from tests.real.private_systemd import PrivateSystemd

from draftworth.services.systemd import bus
from draftworth.services.systemd.bus import ExecCommand
from draftworth.services.systemd.properties import PARALLEL, SAME_UNIT, VOLATILE, Difference, diff, kept, unexpected
from draftworth.services.systemd.quoting import exec_line
from draftworth.services.systemd.snapshot import names_unit

ORIGINAL = """[Unit]
Description=A server
Wants=network-online.target
After=network-online.target
[Service]
Type=exec
Restart=always
ExecStartPre=/bin/true a
ExecStartPre=-/bin/true b
ExecStart=/bin/sleep 600
TimeoutStopSec=77
Nice=5
[Install]
WantedBy=multi-user.target
"""
NEW = ExecCommand(path="/bin/sleep", argv=("/bin/sleep", "601"))


def read(systemd: PrivateSystemd, unit: str) -> dict[str, Any]:
    return kept(bus.properties(systemd.host(), unit))


def variant_of(original: str, text: str, more: str = "") -> str:
    """Return the text of a unit beside the original, as a trial makes it."""
    return (
        f"{text}\n[Unit]\nDescription=Trial\nConflicts={original}\nAfter={original}\n"
        f"OnFailure={original} back.service\nOnSuccess={original}\n"
        f"[Service]\nExecStart=\nExecStart={exec_line(NEW.argv)}\nRestart=no\n"
        f"TimeoutStartSec=900\nSyslogIdentifier=trial\n{more}"
    )


def parallel(
    systemd: PrivateSystemd, original: str, variant: str, text: str = ORIGINAL, more: str = ""
) -> tuple[Difference, ...]:
    systemd.write_unit(original, text)
    systemd.write_unit(variant, variant_of(original, text, more), "run")
    systemd.systemctl("daemon-reload")
    return unexpected(read(systemd, original), read(systemd, variant), expected_exec=[NEW], hands_over=["back.service"])


def test_a_unit_is_the_same_whatever_its_run_does(module_systemd: PrivateSystemd) -> None:
    """Inactive, active, restarted, reloaded, failed, after daemon-reload and daemon-reexec."""
    unit = "life.service"
    module_systemd.write_unit(
        unit,
        "[Service]\nType=notify\nNotifyAccess=all\nUser=nobody\nWatchdogSec=100\nStateDirectory=life\n"
        "ExecCondition=/bin/true\nExecStartPre=/bin/true\nExecStartPost=/bin/true\nExecReload=/bin/true\n"
        "ExecStop=/bin/true\nExecStopPost=/bin/true\nFileDescriptorStoreMax=3\nMemoryMax=1G\n"
        "ExecStart=/bin/sh -c 'systemd-notify --ready --status=here; exec sleep 600'\n"
        "[Unit]\nConditionPathExists=/bin\nAssertPathExists=/bin\n",
    )
    module_systemd.systemctl("daemon-reload")
    first = read(module_systemd, unit)
    for command in (
        ("start", unit),
        ("restart", unit),
        ("reload", unit),
        ("daemon-reload",),
        ("daemon-reexec",),
        ("kill", "--signal=KILL", unit),
        ("reset-failed", unit),
        ("start", unit),
        ("stop", unit),
    ):
        module_systemd.systemctl(*command)
        if command[0] == "kill":
            time.sleep(0.3)
            assert module_systemd.systemctl("is-active", unit, check=False) == "failed"
        now = read(module_systemd, unit)
        assert diff(first, now) == (), command
        if command[0] == "start":
            assert (now["UID"], now["WatchdogUSec"]) == (65534, 100_000_000)


def test_every_setting_of_a_unit_is_compared(module_systemd: PrivateSystemd) -> None:
    module_systemd.write_unit("set.service", ORIGINAL)
    module_systemd.systemctl("daemon-reload")
    found = bus.properties(module_systemd.host(), "set.service")
    compared = kept(found)
    # 401 properties in systemd 252; those left out are run-time state, or told twice (ExecStart beside ExecStartEx).
    assert len(found) >= 390
    assert found.keys() - compared.keys() <= VOLATILE.keys() | {"UID", "GID", "WatchdogUSec"} | {
        name for name in found if f"{name}Ex" in found
    }
    for setting, name in (
        ("Nice=7", "Nice"),
        ("Environment=A=b", "Environment"),
        ("ExecStartPre=/bin/true c", "ExecStartPreEx"),
        ("MemoryMax=1G", "MemoryMax"),
        ("LimitNOFILE=100", "LimitNOFILE"),
        ("OOMScoreAdjust=1", "OOMScoreAdjust"),
        ("EnvironmentFile=-/etc/x", "EnvironmentFiles"),
        ("CPUAffinity=0", "CPUAffinity"),
        ("SetCredential=a:b", "SetCredential"),
        ("KillMode=process", "KillMode"),
    ):
        module_systemd.write_unit("set.service", f"{ORIGINAL}[Service]\n{setting}\n")
        module_systemd.systemctl("daemon-reload")
        assert name in {one.name for one in diff(compared, read(module_systemd, "set.service"))}, setting


def test_no_secret_is_kept_and_every_secret_is_compared(module_systemd: PrivateSystemd) -> None:
    text = (
        "[Service]\nEnvironment=HF_TOKEN={0} PLAIN={0}\nSetCredential=cred:{0}\nStandardInputText={0}\n"
        "ExecStart=/bin/sleep --api-key {0} 5\nExecStartPre=-/bin/true --password={0}\n"
    )
    module_systemd.write_unit("secret.service", text.format("hunter2secret"))
    module_systemd.systemctl("daemon-reload")
    first = read(module_systemd, "secret.service")
    assert "hunter2secret" not in json.dumps(first)
    digest = hashlib.sha256(b"hunter2secret").hexdigest()
    assert first["Environment"] == [f"HF_TOKEN=sha256:{digest}", f"PLAIN=sha256:{digest}"]
    module_systemd.write_unit("secret.service", text.format("hunter3secret"))
    module_systemd.systemctl("daemon-reload")
    assert {one.name for one in diff(first, read(module_systemd, "secret.service"))} == {
        "Environment",
        "SetCredential",
        "StandardInputData",
        "ExecStartEx",
        "ExecStartPreEx",
    }


def test_a_secret_in_the_command_that_is_tried_is_compared_too() -> None:
    base = {"Id": "a.service", "Names": ["a.service"], "Restart": "no"}
    argv = ("/bin/x", "--api-key", "abcdef")
    row = [["/bin/x", list(argv), [], 0, 0, 0, 0, 0, 0, 0]]
    original = kept({**base, "ExecStartEx": row, "ExecStart": row})
    right = ExecCommand(path="/bin/x", argv=argv)
    wrong = ExecCommand(path="/bin/x", argv=("/bin/x", "--api-key", "abcdeg"))
    assert unexpected(original, original, expected_exec=[right]) == ()
    assert [one.name for one in unexpected(original, original, expected_exec=[wrong])] == ["ExecStartEx"]


def test_a_copy_beside_the_original_differs_as_it_must(module_systemd: PrivateSystemd) -> None:
    assert parallel(module_systemd, "plain.service", "plain-trial.service") == ()


def test_units_that_name_the_original_are_no_difference(module_systemd: PrivateSystemd) -> None:
    module_systemd.write_unit(
        "gate.service", "[Unit]\nRequires=known.service\nAfter=known.service\n[Service]\nExecStart=/bin/sleep 9\n"
    )
    module_systemd.write_unit("early.service", "[Unit]\nBefore=known.service\n[Service]\nExecStart=/bin/sleep 600\n")
    module_systemd.write_unit("known.service", ORIGINAL)
    module_systemd.systemctl("daemon-reload")
    module_systemd.systemctl("enable", "--now", "known.service")
    module_systemd.systemctl("start", "gate.service", "early.service")
    found = parallel(module_systemd, "known.service", "known-trial.service")
    # early.service says so itself; D-Bus shows the order on both, so the files have to be asked.
    assert [one.line() for one in found] == ["After: without early.service, with known.service"]
    host = module_systemd.host()
    original, variant = read(module_systemd, "known.service"), read(module_systemd, "known-trial.service")
    assert (
        unexpected(
            original,
            variant,
            expected_exec=[NEW],
            hands_over=["back.service"],
            names_original=lambda other: names_unit(host, other, original["Names"]),
        )
        == ()
    )
    assert not names_unit(host, "early.service", ["nown.service", "known.servic"])
    module_systemd.systemctl("stop", "gate.service", "early.service", "known.service")


def test_a_drop_in_of_a_prefix_leaks_into_the_copy(module_systemd: PrivateSystemd) -> None:
    module_systemd.write_unit("llm-.service.d/50.conf", "[Service]\nNice=11\n")
    found = parallel(module_systemd, "llm.service", "llm-trial.service")
    assert {one.name for one in found} == {"DropInPaths", "Nice"}
    assert "/etc/systemd/system/llm-.service.d/50.conf" in next(o.line() for o in found if o.name == "DropInPaths")


def test_a_prefix_drop_in_that_changes_nothing_visible_is_told_too(module_systemd: PrivateSystemd) -> None:
    module_systemd.write_unit("same-.service.d/50.conf", "[Service]\nNice=5\n")
    found = parallel(module_systemd, "same.service", "same-trial.service")
    assert [one.name for one in found] == ["DropInPaths"]


def test_a_drop_in_of_the_same_name_shadows_the_copied_one(module_systemd: PrivateSystemd) -> None:
    text = ORIGINAL.replace("TimeoutStopSec=77\n", "")
    module_systemd.write_unit("vll.service.d/10.conf", "[Service]\nTimeoutStopSec=77\n")
    module_systemd.write_unit("vll-trial.service.d/10.conf", "[Service]\nTimeoutStopSec=77\n", "run")
    assert parallel(module_systemd, "vll.service", "vll-trial.service", text) == ()
    module_systemd.write_unit("vll-.service.d/10.conf", "[Service]\n# nothing\n")
    found = parallel(module_systemd, "vll.service", "vll-trial.service", text)
    assert {"DropInPaths", "TimeoutStopUSec"} <= {one.name for one in found}
    stop = next(one for one in found if one.name == "TimeoutStopUSec")
    assert (stop.before, stop.after) == (77_000_000, 90_000_000)


@pytest.mark.parametrize("specifier", ["%n", "%p", "%N", "%P", "%f"])
def test_specifiers_of_the_name_leak_into_the_copy(module_systemd: PrivateSystemd, specifier: str) -> None:
    text = f"{ORIGINAL}[Service]\nEnvironment=NAME={specifier}\nRuntimeDirectory=%p\nExecStartPre=/bin/true %n\n"
    found = parallel(module_systemd, "spec.service", "other.service", text)
    assert {one.name for one in found} == {
        "Environment",
        "ExecStartPreEx",
        "RequiresMountsFor",
        "RuntimeDirectory",
    }


def test_drop_ins_for_every_service_apply_to_both(module_systemd: PrivateSystemd) -> None:
    module_systemd.write_unit("service.d/90.conf", "[Service]\nOOMScoreAdjust=3\n")
    try:
        assert parallel(module_systemd, "typed.service", "typed-trial.service") == ()
        assert read(module_systemd, "typed-trial.service")["OOMScoreAdjust"] == 3
    finally:
        (module_systemd.etc / "service.d/90.conf").unlink()


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ("Restart=always\n", {"Restart"}),
        ("ExecStart=\nExecStart=/bin/sleep 602\n", {"ExecStartEx"}),
        ("ExecStart=\nExecStart=-/bin/sleep 601\n", {"ExecStartEx"}),
        ("ExecStartPre=/bin/true a\n", {"ExecStartPreEx"}),
        ("ExecStartPre=\nExecStartPre=-/bin/true b\nExecStartPre=/bin/true a\n", {"ExecStartPreEx"}),
        ("[Unit]\nAfter=timers.target\n", {"After"}),
        ("[Unit]\nConflicts=timers.target\n", {"Conflicts"}),
        ("[Unit]\nOnFailure=timers.target\n", {"OnFailure"}),
        ("[Unit]\nWants=timers.target\n", {"Wants"}),
        ("[Unit]\nBefore=timers.target\n", {"Before"}),
    ],
)
def test_anything_more_is_a_second_difference(module_systemd: PrivateSystemd, more: str, names: set[str]) -> None:
    found = parallel(module_systemd, "more.service", "more-trial.service", more=more)
    assert {one.name for one in found} == names


def test_an_order_that_is_lost_is_a_second_difference(module_systemd: PrivateSystemd) -> None:
    module_systemd.write_unit("less.service", ORIGINAL)
    text = ORIGINAL.replace("After=network-online.target\n", "").replace("Wants=network-online.target\n", "")
    module_systemd.write_unit("less-trial.service", variant_of("less.service", text), "run")
    module_systemd.systemctl("daemon-reload")
    host = module_systemd.host()
    found = unexpected(
        read(module_systemd, "less.service"),
        read(module_systemd, "less-trial.service"),
        expected_exec=[NEW],
        hands_over=["back.service"],
        names_original=lambda other: names_unit(host, other, ["less.service"]),
    )
    assert [one.line() for one in found] == [
        "After: without network-online.target, with less.service",
        "Wants: without network-online.target",
    ]


def drop_in(systemd: PrivateSystemd, unit: str, text: str) -> tuple[Difference, ...]:
    systemd.write_unit(unit, ORIGINAL)
    systemd.run(["rm", "-rf", f"/run/systemd/system/{unit}.d"])
    systemd.systemctl("daemon-reload")
    before = read(systemd, unit)
    systemd.write_unit(f"{unit}.d/zz-trial.conf", text, "run")
    systemd.systemctl("daemon-reload")
    return unexpected(before, read(systemd, unit), expected_exec=[NEW], hands_over=["back.service"])


def test_a_drop_in_on_the_unit_itself_differs_as_it_must(module_systemd: PrivateSystemd) -> None:
    exec_ = f"[Service]\nExecStart=\nExecStart={exec_line(NEW.argv)}\n"
    text = f"[Unit]\nDescription=Trial\nOnFailure=back.service\n{exec_}Restart=no\nTimeoutStartSec=900\n"
    assert drop_in(module_systemd, "same.service", text) == ()
    assert [one.name for one in drop_in(module_systemd, "same.service", f"{text}Nice=6\n")] == ["Nice"]
    assert [one.name for one in drop_in(module_systemd, "same.service", exec_)] == ["Restart"]
    without = text.replace("ExecStart=\n", "")
    # Without the reset it has two commands, which this Type= must not have.
    assert {"ExecStartEx", "LoadState"} <= {one.name for one in drop_in(module_systemd, "same.service", without)}
    more = f"{text}[Unit]\nConflicts=timers.target\nOnSuccess=timers.target\n"
    assert {one.name for one in drop_in(module_systemd, "same.service", more)} == {"Conflicts", "OnSuccess"}


def test_other_units_that_come_and_go_do_not_change_the_unit(module_systemd: PrivateSystemd) -> None:
    """systemd shows what other units say about one only while they are loaded."""
    module_systemd.write_unit("base.service", ORIGINAL)
    module_systemd.write_unit(
        "ward.service", "[Unit]\nPartOf=base.service\nAfter=base.service\n[Service]\nExecStart=/bin/sleep 600\n"
    )
    module_systemd.systemctl("daemon-reload")
    alone = read(module_systemd, "base.service")
    module_systemd.systemctl("start", "ward.service")
    together = read(module_systemd, "base.service")
    assert {one.name for one in diff(alone, together)} == {"Before", "ConsistsOf"}
    old = ExecCommand(path="/bin/sleep", argv=("/bin/sleep", "600"))
    for before, after in ((alone, together), (together, alone)):
        assert [one.name for one in unexpected(before, after, expected_exec=[old])] == ["Restart"]
    module_systemd.systemctl("stop", "ward.service")


def test_each_allowed_difference_has_its_reason() -> None:
    assert all(PARALLEL.values())
    assert all(VOLATILE.values())
    assert SAME_UNIT.keys() < PARALLEL.keys()
    # Nothing that is not the trial's business.
    assert not PARALLEL.keys() & {"Environment", "Nice", "User", "LimitNOFILE", "ExecStartPreEx", "Requires", "Type"}
    assert not VOLATILE.keys() & PARALLEL.keys()


def test_differences_are_told_in_a_line() -> None:
    assert Difference(name="Nice", before=5, after=7).line() == "Nice: 5 → 7"
    assert Difference(name="After", before=["a", "b"], after=["b", "c"]).line() == "After: without a, with c"
    assert Difference(name="User", before="", after="me").line() == "User: nothing → me"
    assert Difference(name="New", before=None, after=[]).line() == "New: nothing → nothing"
    reordered = Difference(name="ExecStartPreEx", before=["a", "b"], after=["b", "a"])
    assert reordered.line() == "ExecStartPreEx: a b → b a"


def test_without_the_ex_properties_of_new_systemd_the_old_are_kept() -> None:
    row = [["/bin/x", ["/bin/x", "a"], True, 1, 2, 3, 4, 5, 6, 7]]
    assert kept({"ExecStart": row}) == {"ExecStart": [["/bin/x", ["/bin/x", "a"], True]]}


def test_what_is_kept_survives_a_record() -> None:
    """Kept properties survive JSON as they are, so that a record can be compared with a reading."""
    assert json.loads(
        json.dumps(kept({"ExecPaths": [], "Conditions": [["ConditionPathExists", False, False, "/bin", 1]]}))
    ) == {
        "Conditions": [["ConditionPathExists", False, False, "/bin"]],
        "ExecPaths": [],
    }
