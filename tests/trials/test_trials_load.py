"""A trial's file: every mistake is one line that names file, line, field and the nearest known one."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth import redact
from draftworth.errors import UsageError
from draftworth.trials.config import TrialConfig
from draftworth.trials.load import find_line
from draftworth.trials.load import load_process as load
from draftworth.trials.schema import json_schema, toml_schema

GOOD = """\
[service]
command = ["vllm", "serve", "m"]
port = 8000

[[arms]]
name = "ngram"
speculative_config = { method = "ngram", num_speculative_tokens = 5 }
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "draftworth.toml"
    path.write_text(text, encoding="utf-8")
    return path


def complaint(folder: Path, text: str) -> str:
    path = write(folder, text)
    with pytest.raises(UsageError) as caught:
        load(path)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(path), "F")


def test_a_good_file_gives_what_it_says(tmp_path: Path) -> None:
    config = load(write(tmp_path, GOOD))
    assert config.service.command == ("vllm", "serve", "m")
    assert config.service.cwd == tmp_path
    assert [arm.name for arm in config.variants] == ["ngram"]
    assert config.baseline.name == "baseline"
    assert config.url == "http://127.0.0.1:8000"


def test_an_ipv6_host_is_bracketed(tmp_path: Path) -> None:
    text = GOOD.replace("port = 8000", 'port = 8000\nhost = "::1"')
    assert load(write(tmp_path, text)).url == "http://[::1]:8000"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("port = 8000", "prot = 8000"), "F:3: service.prot: unknown field; did you mean 'port'?"),
        (('name = "ngram"', 'nam = "ngram"'), "F:6: arms[0].nam: unknown field; did you mean 'name'?"),
        (("port = 8000", 'port = "x"'), "F:3: service.port: input should be a valid integer"),
        (("port = 8000", "port = 70000"), "F:3: service.port: input should be less than or equal to 65535, not 70000"),
        (('["vllm", "serve", "m"]', '"vllm serve m"'), "F:2: service.command: must be a list"),
        (("port = 8000", ""), "F:1: service.port: missing"),
        (('name = "ngram"', 'name = "a b"'), "F:6: arms[0].name: string should match pattern"),
        (
            ('name = "ngram"', 'name = "baseline"'),
            "F:5: arms: the baseline must not have a speculative_config; the name is reserved",
        ),
        (("port = 8000", 'port = "8000"'), "F:3: service.port: input should be a valid integer, not '8000'"),
        (("port = 8000", "port = true"), "F:3: service.port: input should be a valid integer, not True"),
        (("port = 8000", "port = 8000.0"), "F:3: service.port: input should be a valid integer, not 8000.0"),
        (('"serve", "m"]', '"serve", 1]'), "F:2: service.command[2]: must be a text in quotes, not 1"),
        (("num_speculative_tokens = 5", "x = inf"), "F:7: arms[0].speculative_config: inf has no form in JSON"),
        (("num_speculative_tokens = 5", "x = 2026-01-01"), "F:7: arms[0].speculative_config: 2026-01-01 has no form"),
        (("[service]", "[servce]"), "F:1: servce: unknown field; did you mean 'service'?"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, change: tuple[str, str], expected: str) -> None:
    assert complaint(tmp_path, GOOD.replace(*change)).startswith(expected)


@pytest.mark.parametrize(
    ("table", "line", "expected"),
    [
        ("workload", 'repeats = "2"', "workload.repeats: input should be a valid integer, not '2'"),
        ("workload", "max_tokens = 50.0", "workload.max_tokens: input should be a valid integer, not 50.0"),
        ("workload", 'categories = "coding"', "workload.categories: must be a list"),
        ("verdict", 'output_check = "no"', "verdict.output_check: input should be a valid boolean, not 'no'"),
        ("verdict", "output_check = 0", "verdict.output_check: input should be a valid boolean, not 0"),
        ("limits", "downtime_s = inf", "limits.downtime_s: input should be a finite number, not inf"),
        ("limits", "downtime_s = nan", "limits.downtime_s: input should be a finite number, not nan"),
        ("limits", 'downtime_s = "inf"', "limits.downtime_s: input should be a valid number, not 'inf'"),
        ("limits", "downtime_s = true", "limits.downtime_s: input should be a valid number, not True"),
    ],
)
def test_values_keep_their_type(tmp_path: Path, table: str, line: str, expected: str) -> None:
    assert complaint(tmp_path, f"{GOOD}\n[{table}]\n{line}\n").startswith(f"F:10: {expected}")


def test_whole_numbers_lists_and_paths_are_taken(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    text = GOOD.replace("port = 8000", 'port = 8000\ncwd = "here"')
    config = load(write(tmp_path, text + '[limits]\ndowntime_s = 500\n[workload]\ncategories = ["coding"]\n'))
    assert config.limits.downtime_s == 500.0
    assert config.workload.categories == ("coding",)
    assert config.service.cwd == tmp_path / "here"


def test_a_trial_comes_back_from_the_journals_json(tmp_path: Path) -> None:
    text = GOOD + '\n[[arms]]\nname = "two"\nargs = ["--x"]\n[workload]\ncategories = ["coding"]\n'
    config = load(write(tmp_path, text))
    assert TrialConfig.model_validate(json.loads(json.dumps(config.model_dump(mode="json")))) == config
    assert TrialConfig.model_validate(json.loads(json.dumps(redact.config(config)))) == config


def test_the_right_one_of_several_arms_is_named(tmp_path: Path) -> None:
    text = GOOD + '\n[[arms]]\nname = "second"\nspeculativ_config = { method = "ngram" }\n'
    expected = "F:11: arms[1].speculativ_config: unknown field; did you mean 'speculative_config'?"
    assert complaint(tmp_path, text) == expected


def test_two_arms_of_one_name_are_refused(tmp_path: Path) -> None:
    assert "two arms are named 'ngram'" in complaint(tmp_path, GOOD + '\n[[arms]]\nname = "ngram"\n')


def test_a_speculating_baseline_is_refused(tmp_path: Path) -> None:
    text = GOOD + '\n[[arms]]\nname = "baseline"\nspeculative_config = { method = "ngram" }\n'
    assert "the baseline must not have a speculative_config" in complaint(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "expected"), [("[service\n", "not valid TOML"), ("port = \n", "not valid TOML"), ("", "service: missing")]
)
def test_broken_toml_is_told(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in complaint(tmp_path, text)


def test_a_missing_file_a_folder_and_bytes_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such file; `draftworth trial schema`"):
        load(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="is a folder"):
        load(tmp_path)
    (tmp_path / "b.toml").write_bytes(b"a = \xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8 text"):
        load(tmp_path / "b.toml")


def test_a_missing_working_folder_is_told(tmp_path: Path) -> None:
    assert "no such folder" in complaint(tmp_path, GOOD.replace("port = 8000", 'port = 8000\ncwd = "nowhere"'))


def test_a_workload_file_is_relative_to_the_trials_file(tmp_path: Path) -> None:
    config = load(write(tmp_path, GOOD + '\n[workload]\nsource = "mine.jsonl"\n'))
    assert config.workload.source == str(tmp_path / "mine.jsonl")


def test_the_printed_schema_is_a_trial_that_loads(tmp_path: Path) -> None:
    config = load(write(tmp_path, toml_schema()))
    assert config.variants[0].speculative_config is not None
    # Uncommenting every field must load too: the examples are of the right kinds.
    lines = [line[2:] if line.startswith("# ") and " = " in line and line[2].islower() else line for line in _fields()]
    lines = [line.removeprefix("# ") if line == "# [search]" else line for line in lines]
    # One load excludes the others.
    everything = "\n".join(line for line in lines if not line.startswith(("rate = ", "replay_speed = ")))
    TrialConfig.model_validate(tomllib.loads(everything))


def _fields() -> list[str]:
    """The schema's lines without prose."""
    keep = []
    for line in toml_schema().splitlines():
        key = line.removeprefix("# ").split(" = ")[0]
        if line.startswith(("[", "# [search]")) or (" = " in line and key.isidentifier()):
            keep.append(line)
    return keep


def test_every_field_is_described() -> None:
    schema = json_schema()
    for name, part in {**schema["$defs"], "TrialConfig": schema}.items():
        for field, info in part.get("properties", {}).items():
            assert info.get("description"), f"{name}.{field} has no description"


@given(st.text(max_size=300), st.lists(st.one_of(st.text(max_size=5), st.integers(0, 3)), max_size=4))
def test_finding_a_line_never_fails(text: str, location: list[str | int]) -> None:
    line = find_line(text, tuple(location))
    assert line is None or 1 <= line <= len(text.splitlines())


LOADS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"concurrency": st.lists(st.integers(1, 64), min_size=1, max_size=3)}),
    st.fixed_dictionaries({"rate": st.lists(st.floats(0.1, 100), min_size=1, max_size=3)}),
    st.fixed_dictionaries({"replay_speed": st.floats(0.1, 10)}),
    st.just({}),
)


@given(LOADS, st.lists(st.integers(2, 4096), min_size=1, max_size=3))
def test_what_the_journal_holds_of_a_file_loads_again(load_of: dict[str, Any], lengths: list[int]) -> None:
    made = TrialConfig.model_validate(
        {
            "service": {"command": ["vllm", "serve", "m"], "port": 8000},
            "arms": [{"name": "a", "speculative_config": {"method": "ngram"}}],
            "workload": {**load_of, "max_tokens": lengths},
        }
    )
    again = TrialConfig.model_validate(json.loads(json.dumps(redact.config(made))))
    assert again.workload == made.workload
