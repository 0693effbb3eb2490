"""Public reports about llama.cpp's figures, each with what this tool makes of it."""

from draftworth.engines.base import Planned, StartupFacts, Window
from draftworth.engines.counts import figure, not_comparable
from draftworth.engines.llamacpp import LlamaCpp
from draftworth.engines.llamacpp.metrics import parse_metrics, totals
from draftworth.engines.llamacpp.per_request import request_counts


def windows(*lines: str) -> list[Window]:
    reader = LlamaCpp().window_reader()
    return [one for line in lines if isinstance(one := reader.take(line), Window)]


def test_14048_discarded_drafts_are_in_the_rate_of_old_builds_and_it_is_compared_with_none() -> None:
    # ggml-org/llama.cpp issue 14048, pull request 14104: `--draft-min 4` threw 30 of 80 drafted tokens away unverified.
    line = "draft acceptance rate = {rate} ({accepted:5d} accepted / {drafted:5d} generated)"
    (old,) = windows(
        "build: 5586 (669c13e0) with cc for x86_64-linux-gnu", line.format(rate="0.50000", accepted=40, drafted=80)
    )
    (new,) = windows(
        "build: 6000 (e4868d16) with cc for x86_64-linux-gnu", line.format(rate="0.80000", accepted=40, drafted=50)
    )
    assert old.counts is not None
    assert new.counts is not None
    assert figure(old.counts, "acceptance_rate").value == 0.5
    assert "--draft-min threw away" in figure(old.counts, "acceptance_rate").meaning
    assert figure(new.counts, "acceptance_rate").value == 0.8
    assert not_comparable("acceptance_rate", old.counts, new.counts) is not None
    answer = {"predicted_n": 100, "draft_n": 80, "draft_n_accepted": 40}
    ends = [request_counts([answer], version) for version in ("b5586", "b11434")]
    assert ends[0] is not None
    assert ends[1] is not None
    assert not_comparable("acceptance_rate", ends[0], ends[1]) is not None


def test_27676_an_answer_does_not_tell_its_verified_drafts_unless_a_fork_sends_them() -> None:
    # Pull request 27676, closed: draft_n and draft_n_accepted give a rate and no mean length.
    answer = {"predicted_n": 95, "draft_n": 80, "draft_n_accepted": 64}
    own = request_counts([answer], "b11434")
    assert own is not None
    assert own.acceptance_rate == 0.8
    assert own.length_per_drafting_step is None
    assert "do not count verified drafts" in own.why_not("drafting_steps")
    fork = request_counts([{**answer, "draft_n_verif_steps": 20}, {"predicted_n": 5}], "b11434")
    assert fork is not None
    assert (fork.drafting_steps, fork.length_per_drafting_step) == (20, 1 + 64 / 20)
    mixed = request_counts([{**answer, "draft_n_verif_steps": 20}, answer], "b11434")
    assert mixed is not None
    assert mixed.drafting_steps is None


def test_25908_the_default_probability_of_a_draft_is_doubted_before_it_costs() -> None:
    # Issue 25908: --spec-draft-n-max 64 with p_min 0: 96 accepted of 1378, slower than without a draft.
    arm = Planned(
        name="draft",
        command=("llama-server", "-m", "4b.gguf", "--metrics", "--parallel", "1", "-lv", "4"),
        speculation={"type": "draft-simple", "model": "0.6b.gguf", "n_max": 64},
    )
    doubts = {one.code: one.severity for one in LlamaCpp().doubts(arm, StartupFacts(version="b10068"))}
    assert doubts == {"p_min_default": "costs", "not_counted": "note"}
    (window,) = windows("draft acceptance = 0.06967 (   96 accepted /  1378 generated), mean len =  5.36")
    assert window.counts is not None
    assert window.counts.drafting_steps == 22


def test_23987_a_draft_model_alone_no_longer_speculates() -> None:
    # Pull requests 23861 and 23987: --model-draft used to switch draft-simple on by itself.
    arm = Planned(name="draft", command=("llama-server", "-m", "a.gguf", "-md", "d.gguf", "--metrics"))
    codes = [{one.code for one in LlamaCpp().doubts(arm, StartupFacts(version=v))} for v in ("b9432", "b11434")]
    assert ["type_missing" in one for one in codes] == [False, True]


def test_26389_counters_of_zero_are_no_sign_of_speculation() -> None:
    # Pull request 26389: the counters are exported by every server, speculating or not.
    page = "".join(
        f"# TYPE llamacpp:{name} counter\nllamacpp:{name} {value}\n"
        for name, value in (
            ("tokens_predicted_total", 390),
            ("spec_decode_num_draft_tokens_total", 0),
            ("spec_decode_num_accepted_tokens_total", 0),
            ("spec_decode_num_drafts_total", 0),
        )
    )
    found = totals(parse_metrics(page))
    assert (found.drafted, found.drafting_steps) == (0, 0)
    assert found.acceptance_rate is None
    assert figure(found, "coverage").value == 0.0
