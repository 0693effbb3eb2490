"""The report, the plot and the terminal lines of a trial."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.reports.reports_records import trial
from tests.reports.reports_trials import explained, record

from draftworth.cli.show import show_lines, verdict_lines
from draftworth.findings import Code, find
from draftworth.reports.markdown import report, write_report
from draftworth.reports.plots import TRIAL_PLOT, has_trial_plot, trial_plot
from draftworth.trials.record import read

DATA = Path(__file__).parents[2] / "benchmarks" / "data"


def table(text: str, head: str) -> list[list[str]]:
    """Return the cells of the table whose first row begins with `head`."""
    rows = text[text.index(head) :].partition("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    assert len({len(row) for row in cells}) == 1, "every row has the columns of the head"
    return cells[2:]


def test_the_judged_metric_leads_and_every_ratio_is_there() -> None:
    rows = table(report(trial(metric="throughput")), "| | baseline | variant |")
    assert [row[0] for row in rows] == [
        "**throughput, tokens a second of request time** (judged)",
        "TPOT, ms",
        "TTFT, ms",
    ]
    assert rows[0][1:] == ["44.0", "55.0", "1.250 (1.125 to 1.375)", "above 1"]
    assert rows[1][1:] == ["20.0", "16.0", "0.800 (0.720 to 0.880)", "below 1"]
    assert table(report(trial(metric="ttft")), "| | baseline")[0][0] == "**TTFT, ms** (judged)"


def test_goodput_of_an_open_loop_is_a_share() -> None:
    config = {"workload": {"rate": [2.0], "source": "builtin"}}
    assert "goodput, share of requests" in report(trial(metric="goodput", config=config))


def test_categories_and_points_have_tables_of_their_own() -> None:
    text = report(trial(sweep=True))
    assert [row[0] for row in table(text, "| prompts |")] == ["all", "code\\|x"]
    assert [row[0] for row in table(text, "| load | pairs")] == ["all", "1 at a time", "16 at a time"]
    assert "| load |" not in report(trial())


def test_each_arm_is_shown_at_each_load() -> None:
    rows = table(report(trial(sweep=True)), "| load | arm |")
    assert [row[:2] for row in rows[:3]] == [
        ["1 at a time", "baseline"],
        ["1 at a time", "eagle"],
        ["4 at a time", "baseline"],
    ]
    assert rows[1][6] == "7.70 (7.31 to 8.08)"


def test_the_look_at_which_it_ended_is_told() -> None:
    assert "Ended at look 2 of 3: the evidence was enough." in report(trial(look=2, looks=3))
    assert "Ended at look 3 of 3, the last." in report(trial(look=3, looks=3))
    assert "look" not in report(trial())
    assert any("look 2 of 3" in line for line in verdict_lines(trial(look=2, looks=3)))


def test_servers_that_ran_already_show_their_url_and_no_command() -> None:
    text = report(trial(endpoints=True))
    assert "Nothing was started or stopped; the servers run on." in text
    assert "restored" not in text
    assert "```sh" not in text
    assert "| eagle | vllm (version unknown) | `http://eagle:8000` |" in text
    shown = "\n".join(show_lines(trial(endpoints=True), Path("x")))
    assert "Servers: nothing was started or stopped" in shown
    assert "eagle: vllm (version unknown) at http://eagle:8000" in shown


def test_a_service_that_is_not_back_is_shouted_whatever_it_is() -> None:
    for endpoints in (False, True):
        lost = trial(endpoints=endpoints, restored=False, restore="it did not start", restore_commands=("vllm serve",))
        assert "**NOT RESTORED**: It did not start." in report(lost)
        assert any("NOT RESTORED; it did not start" in line for line in verdict_lines(lost))


def test_blocks_of_one_start_are_one_start() -> None:
    assert "| baseline | vllm (version unknown) | 80 | 120 |" in report(trial())


def test_retries_and_the_prefix_cache_are_shown_where_there_are_any() -> None:
    record = trial()
    arms = tuple(arm.model_copy(update={"retried": 3, "cache_share": 0.25}) for arm in record.arms)
    text = report(record.model_copy(update={"arms": arms}))
    assert "| answered | failed | retried |" in text
    assert "| 25 % |" in text
    assert "retried" not in report(record)


def test_a_finding_is_there_with_its_advice_and_keeps_its_names() -> None:
    text = report(trial(findings=(find(Code.BASELINE_DRIFT, "baseline-a drifted by 5 %"),)))
    assert "(baseline_drift): baseline-a drifted by 5 %. The baseline itself changed" in text


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("tpot", "20% less time per token than the baseline (TPOT: time per output token)"),
        ("ttft", "1% more time to the first token than the baseline (TTFT)"),
        ("throughput", "25% more tokens a second of request time than the baseline (throughput)"),
    ],
)
def test_the_terminal_says_what_the_ratio_means(metric: str, words: str) -> None:
    assert f"  {words}" in verdict_lines(trial(metric=metric))


OLD = Path(__file__).parent / "data" / "demo_trial"


def test_the_readmes_excerpt_is_of_the_stored_demo() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    text = report(read(DATA / "demo_trial"))
    rows = re.findall(r"^> \| (?:all|coding|editing|explanation|math|structured) .*$", readme, re.MULTILINE)
    assert len(rows) == 6
    for row in rows:
        name, base, other, ratio = (cell.strip() for cell in row.removeprefix("> |").split("|")[:4])
        assert f"| {base} | {other} | {ratio} |" in text, name


@pytest.mark.parametrize("folder", [OLD, DATA / "h200_moe_trial"], ids=lambda path: path.name)
def test_records_of_the_first_version_still_render(folder: Path) -> None:
    record = read(folder)
    assert record.schema_version == 1
    text = report(record)
    assert table(text, "| | baseline")[0][0] == "**TPOT, ms** (judged)"
    assert "1 at a time; 1 repeat" in text
    assert text.count("```sh") == len(record.arms)
    assert TRIAL_PLOT not in text
    assert trial_plot(record) is None
    assert show_lines(record, DATA)[1].startswith("Verdict: faster")
    before = (folder / "report.md").read_text(encoding="utf-8")
    for ratio in re.findall(r"\d\.\d{3} \(\d\.\d{3} to \d\.\d{3}\)", before):
        assert ratio in text
    starts = re.findall(r"^\| (?:baseline|ngram-5) \| vllm .*$", before, re.MULTILINE)
    assert all(row in text for row in starts)


# --- the plot


def test_several_load_points_have_a_plot_that_the_report_shows() -> None:
    record = trial(sweep=True)
    assert f"]({TRIAL_PLOT})" in report(record)
    svg = trial_plot(record)
    assert svg is not None
    root = ET.fromstring(svg)
    texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"TPOT (ms a token)", "TTFT (ms), log scale", "baseline", "eagle", "p50", "p99", "16"} <= set(texts)
    assert "prefers-color-scheme: dark" in svg
    assert trial_plot(record) == svg


def test_one_load_point_has_no_plot() -> None:
    assert not has_trial_plot(trial())
    assert trial_plot(trial()) is None
    assert TRIAL_PLOT not in report(trial())


def test_an_arm_that_was_not_measured_at_two_loads_leaves_no_broken_image() -> None:
    record = trial(sweep=True)
    first, second = record.arms
    ended = record.model_copy(update={"arms": (first, second.model_copy(update={"points": ()}))})
    assert TRIAL_PLOT not in report(ended)
    assert trial_plot(ended) is None


def test_the_report_tells_cause_and_next_step_where_there_is_an_account(tmp_path: Path) -> None:
    """For a pull request: the page's answer in Markdown, its parts as a table, and no tags."""
    found = record(("ngram-5",))
    path = write_report(tmp_path, found, explained(("ngram-5",)))
    text = path.read_text(encoding="utf-8")
    assert path.name == "report.md"
    assert text.index("## Why") < text.index("## Next") < text.index("## ngram-5 against the baseline")
    why = text[text.index("## Why") : text.index("## Next")]
    assert why.splitlines()[2].startswith("ngram-5 pays 6.00 ms for the engine's mode at 1 at a time.")
    rows = table(why, "| ms a token, 1 at a time |")
    assert ["engine mode", "+6.00", "+5.50 to +6.50"] in rows
    assert rows[-1] == ["ngram-5", "28.00", ""]
    step = text[text.index("## Next") : text.index("## ngram-5 against")]
    assert "`--speculative-config '{}'`" in step
    assert not re.search(r"</?[a-z]", step)


def test_without_an_account_the_report_says_how_it_is_made() -> None:
    found = record(("ngram-5",))
    assert f"draftworth explain {found.id} accounts for the milliseconds" in report(found, answer=True)
    assert "## Why" not in report(found)
