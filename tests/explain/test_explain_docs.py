"""What the docs say of real trials is what the scripts make of the records that are kept."""

from benchmarks.prediction import DATA

from benchmarks import explain
from draftworth.costs.arms import modes_from_trial
from draftworth.costs.file import load_costs


def test_the_shares_in_the_docs_and_the_cause_in_the_readme_are_what_the_script_makes() -> None:
    found = {run.name: explain.accounts(run) for run in sorted(DATA.iterdir()) if run.is_dir()}
    for page, (begin, end), lines in (
        (explain.PAGE, (explain.BEGIN, explain.END), explain.table(found)),
        (explain.ROOT / "README.md", explain.QUOTE, explain.quoted("h200-smollm2-a", "ngram-5", 4)),
    ):
        text = page.read_text(encoding="utf-8")
        assert text.split(begin)[1].split(end)[0].strip().splitlines() == lines, page.name


def test_on_a_real_gpu_a_step_that_drafts_nothing_costs_more_than_one_that_drafts_all() -> None:
    run = DATA / "h200-smollm2-a"
    costs = load_costs(run / "costs-baseline.json")
    known = {"graph_sizes": costs.graph_sizes, "prefills": costs.prefills}
    modes, _ = modes_from_trial(run / "all-1", costs.points, engine="vllm", **known)  # type: ignore[arg-type]
    told = {(one.kind, one.tokens): round(one.ms, 1) for one in modes}
    assert told["idle", 1] == 5.0
    assert (told["drafting", 2], told["drafting", 6]) == (1.4, 2.0)
