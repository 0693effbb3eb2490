"""Commands and variables written for systemd, read back by a real one, and what the process then gets."""

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.real.private_systemd import PrivateSystemd

from draftworth.errors import UsageError
from draftworth.services.systemd import bus
from draftworth.services.systemd.bus import ExecCommand
from draftworth.services.systemd.quoting import environment_line, exec_line, literal

NASTY = [
    "", " ", "a b", " a", "a ", '"', "'", "''", "\\", "\\\\", "a\\", "\\\n", "a\\\n", "\\s", "\\u0041", "\\x41", "\\;",
    "$", "$$", "$A", "${A}", "${", "$1", "a$A", "%", "%%", "%n", "%h", "%%n", "50%", ";", ";;", "; ;", ";c", "#", "# c",
    "\n", "\r", "\t", "\v", "\f", "\a", "\b", "\x01", "\x1b[0m", "\x7f", "é", "日本", "\u0085", "\u00a0", "\u2028",
    "\ufeff", "😀", "-", "--x", "@", ":", "+", "!", "!!x", "|", "-@:+!x", "=", "a=b", "[Unit]", "[Service]",
    "ExecStart=/bin/false", '"q\tz"', "'q q'", "`x`", "*", "?", "~", "&", "{}", "<>", "x" * 100_000,
    '{"method": "ngram", "num_speculative_tokens": 3}',
]  # fmt: skip
# What systemd takes for text: no NUL, no surrogates, no noncharacters.
TEXT = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0").filter(
            lambda char: not 0xFDD0 <= ord(char) <= 0xFDEF and ord(char) & 0xFFFE != 0xFFFE
        ),
        st.sampled_from("\"'\\$%;{}@-:+!# \n\t=xu0n"),
    ),
    max_size=12,
)
FLAGS = st.sampled_from(
    [(), ("ignore-failure",), ("privileged",), ("no-setuid",), ("ambient",), ("ignore-failure", "no-env-expand")]
)
COMMANDS = st.lists(st.tuples(st.lists(TEXT, min_size=1, max_size=6), FLAGS), min_size=1, max_size=40)


def read_back(systemd: PrivateSystemd, lines: list[str]) -> tuple[ExecCommand, ...]:
    """Write one unit with a command a line, and return what systemd has read."""
    text = "".join(f"ExecStartPre={line}\n" for line in lines)
    systemd.write_unit("back.service", f"[Service]\n{text}ExecStart=/bin/true\n")
    systemd.systemctl("daemon-reload")
    found = bus.properties(systemd.host(), "back.service")
    assert found["LoadState"] == "loaded", found["LoadError"]
    return bus.exec_commands(found, "ExecStartPre")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_nasty_words_come_back_equal(module_systemd: PrivateSystemd, place: int) -> None:
    commands = []
    for word in NASTY:
        argv = ["first", "middle", "last"]
        argv[place] = word
        commands.append(ExecCommand(path="/bin/true", argv=tuple(argv)))
    lines = [exec_line(command.argv, path=command.path) for command in commands]
    assert read_back(module_systemd, lines) == tuple(commands)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(commands=COMMANDS)
def test_any_command_comes_back_equal(
    module_systemd: PrivateSystemd, commands: list[tuple[list[str], tuple[str, ...]]]
) -> None:
    wanted = tuple(ExecCommand(path="/bin/true", argv=tuple(argv), flags=flags) for argv, flags in commands)
    lines = [exec_line(one.argv, path=one.path, flags=one.flags) for one in wanted]
    assert read_back(module_systemd, lines) == wanted


@pytest.mark.parametrize("program", ["/opt/my env/bin/vllm", "/opt/50%/x", "/opt/日本/x", "sleep", "/a;b"])
def test_programs_with_odd_paths_come_back_equal(module_systemd: PrivateSystemd, program: str) -> None:
    for flags in ((), ("ignore-failure", "no-env-expand")):
        for argv in ((program, "x"), ("other", "x")):
            line = exec_line(argv, path=program, flags=flags)
            assert read_back(module_systemd, [line]) == (ExecCommand(path=program, argv=argv, flags=flags),)


def test_the_program_is_argv0_unless_said_otherwise() -> None:
    assert exec_line(["/bin/vllm", "serve", "org/model"]) == "/bin/vllm serve org/model"
    assert exec_line(["vllm", "serve"], path="/opt/v/bin/vllm") == "@/opt/v/bin/vllm vllm serve"
    assert exec_line(["/bin/vllm"], path="/bin/vllm", flags=["ignore-failure", "ambient"]) == "-!!/bin/vllm"


def test_specifiers_are_words_unless_they_shall_be_expanded(module_systemd: PrivateSystemd) -> None:
    (plain,) = read_back(module_systemd, [exec_line(["/bin/true", "%p"])])
    assert plain.argv == ("/bin/true", "%p")
    (expanded,) = read_back(module_systemd, [exec_line(["/bin/true", "%p x"], expand=True)])
    assert expanded.argv == ("/bin/true", "back x")


@pytest.mark.parametrize("flags", [(), ("no-env-expand",)])
def test_a_process_gets_literal_words_byte_for_byte(
    module_systemd: PrivateSystemd, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    script, out = tmp_path / "dump.sh", tmp_path / "out"
    script.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" > {out}.new && mv {out}.new {out}\n", encoding="ascii")
    script.chmod(0o755)
    words = [literal(word, flags) for word in NASTY]
    line = exec_line([str(script), *words], flags=flags)
    module_systemd.write_unit(
        "process.service", f"[Service]\nType=oneshot\nEnvironment=A=expanded 1=expanded\nExecStart={line}\n"
    )
    module_systemd.systemctl("daemon-reload")
    module_systemd.systemctl("start", "process.service")
    assert out.read_bytes() == b"".join(word.encode() + b"\0" for word in NASTY)


def test_words_from_dbus_are_expanded_as_before(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    """A `$VAR` of the original's is still one after its command is written again."""
    script = tmp_path / "dump.sh"
    script.write_text('#!/bin/sh\nprintf \'%s\\0\' "$@" > "$OUT"\n', encoding="ascii")
    script.chmod(0o755)
    head = f"[Service]\nType=oneshot\nEnvironment='LIST=a b' OUT={tmp_path}/%n\nExecStart="
    module_systemd.write_unit("first.service", f"{head}{script} $LIST ${{LIST}} $$LIST %%n '$NONE'\n")
    module_systemd.systemctl("daemon-reload")
    (command,) = bus.exec_commands(bus.properties(module_systemd.host(), "first.service"))
    module_systemd.write_unit("second.service", f"{head}{exec_line(command.argv, path=command.path)}\n")
    module_systemd.systemctl("daemon-reload")
    module_systemd.systemctl("start", "first.service", "second.service")
    got = [(tmp_path / f"{name}.service").read_bytes() for name in ("first", "second")]
    assert got[0] == got[1] == b"a\0b\0a b\0$LIST\0%n\0"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values=st.lists(TEXT, min_size=1, max_size=40))
def test_any_variable_comes_back_equal(module_systemd: PrivateSystemd, values: list[str]) -> None:
    lines = "".join(f"Environment={environment_line(f'V{at}', value)}\n" for at, value in enumerate(values))
    module_systemd.write_unit("env.service", f"[Service]\n{lines}ExecStart=/bin/true\n")
    module_systemd.systemctl("daemon-reload")
    found = bus.property(module_systemd.host(), "env.service", bus.SERVICE, "Environment")
    assert found == [f"V{at}={value}" for at, value in enumerate(values)]


def test_a_process_gets_variables_byte_for_byte(module_systemd: PrivateSystemd, tmp_path: Path) -> None:
    values = [word for word in NASTY if len(word) < 1000]
    lines = "".join(f"Environment={environment_line(f'V{at}', value)}\n" for at, value in enumerate(values))
    out = tmp_path / "environ"
    module_systemd.write_unit(
        "env.service", f"[Service]\nType=oneshot\n{lines}ExecStart=/bin/cp /proc/self/environ {out}\n"
    )
    module_systemd.systemctl("daemon-reload")
    module_systemd.systemctl("start", "env.service")
    deadline = time.monotonic() + 5
    while not out.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    entries = dict(entry.partition(b"=")[::2] for entry in out.read_bytes().split(b"\0"))
    assert [entries[f"V{at}".encode()] for at in range(len(values))] == [value.encode() for value in values]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("a\0b", "NUL"),
        (b"\xff".decode(errors="surrogateescape"), "not UTF-8"),
        ("\ufdd0", "noncharacter U\\+FDD0"),
        ("\U0001ffff", "noncharacter U\\+1FFFF"),
        ("x" * 2**20, "too long"),
    ],
)
def test_what_systemd_cannot_hold_is_refused(word: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        exec_line(["/bin/true", word])
    with pytest.raises(UsageError, match=said):
        environment_line("A", word)


@pytest.mark.parametrize(
    ("argv", "more", "said"),
    [
        ([], {}, "without words"),
        (["-x"], {}, "absolute path"),
        ([""], {}, "absolute path"),
        (['/opt/"q"/x'], {}, "no quote, backslash or control"),
        (["/opt/a\\b"], {}, "no quote, backslash or control"),
        (["/opt/a\nb"], {}, "no quote, backslash or control"),
        (["/bin/true"], {"flags": ["via-shell"]}, "via-shell"),
    ],
)
def test_commands_that_cannot_be_written_are_refused(argv: list[str], more: dict[str, list[str]], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        exec_line(argv, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "1A", "A B", "A=B", "é", "A-B"])
def test_names_that_are_no_variables_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no name of an environment variable"):
        environment_line(name, "x")
