"""Settings that learn for themselves are replayed one after the other, and that changes nothing but the memory."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.drafters.naive import Request
from tests.drafters.toy import InMemory

from draftworth.drafters import drafter
from draftworth.drafters import rounds as rounds_module
from draftworth.drafters.base import Limits, Setting
from draftworth.drafters.gathered import OTHERS
from draftworth.drafters.limits import MOST_TABLES, PHASES, categories_that_fit
from draftworth.drafters.replay import replay
from draftworth.drafters.rounds import Again, rounds
from draftworth.predict.requests import replay_requests
from draftworth.reports.replay import lines

ONE, THREE = Limits(), Limits(concurrency=3)


def some_requests(count: int = 12) -> list[Request]:
    rng = np.random.default_rng(5)
    return [
        Request(rng.integers(0, 6, 8).tolist(), rng.integers(0, 6, 20 + at).tolist(), category="ab"[at % 2])
        for at in range(count)
    ]


@dataclass
class Counted(InMemory):
    """Counts how often it is read."""

    read: int = 0

    def batches(self, *, tokens: int = 0):  # type: ignore[no-untyped-def]  # noqa: ANN201
        self.read += 1
        return super().batches(tokens=tokens)


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("sglang-ngram", ONE),
        ("sglang-ngram", THREE),
        ("vllm-suffix", ONE),
        ("vllm-suffix", THREE),
        ("vllm-suffix", Limits(max_model_len=39)),
        ("llamacpp-ngram-mod", THREE),
        ("llamacpp-ngram-map-k", THREE),
    ],
)
def test_settings_together_count_what_each_counts_alone(name: str, limits: Limits) -> None:
    chosen = drafter(name)
    settings = [chosen.grid()[at] for at in (0, 7, 3)]
    trace = InMemory(some_requests(), each=5)
    together = replay(trace, chosen, settings, limits, keep_requests=True)
    assert together.steps is not None
    for at, one in enumerate(settings):
        alone = replay(trace, chosen, [one], limits, keep_requests=True)
        assert alone.steps is not None
        assert together.settings[at].setting == one
        assert together.settings[at].document() == alone.settings[0].document()
        assert together.steps[at].tolist() == alone.steps[0].tolist()
        assert together.seen == alone.seen


def test_kept_requests_stay_with_their_setting() -> None:
    chosen = drafter("sglang-ngram")
    settings = [replace(chosen.settings()[0], k=k) for k in (7, 2, 5)]
    replayed, kept = replay_requests(InMemory(some_requests()), chosen, settings, THREE)
    for one, counts, requests in zip(settings, replayed.settings, kept, strict=True):
        assert requests.hist.shape == (12, one.k + 1)
        assert requests.hist.sum() == counts.total.steps
        assert requests.hist.sum(axis=0).tolist() == list(counts.total.draft_lengths)


def test_suffix_settings_share_a_tree_as_long_as_their_steps_do_not_matter() -> None:
    suffix = drafter("vllm-suffix")
    grid = suffix.grid()
    assert len(rounds(suffix, grid, ONE)) == 1
    assert len(rounds(suffix, grid, Limits(concurrency=2))) == len(grid)
    # A request that reaches max_model_len ends in tokens that are not put in.
    assert len(rounds(suffix, grid, Limits(max_model_len=50), longest=49)) == 1
    assert len(rounds(suffix, grid, Limits(max_model_len=50), longest=50)) == len(grid)
    # Trees of other depths are other trees.
    depths = suffix.settings(k=[3, 5], more={"suffix_decoding_max_tree_depth": [8, 24]})
    assert rounds(suffix, depths, ONE) == [[0, 1], [2, 3]]
    assert rounds(drafter("vllm-ngram-v1"), drafter("vllm-ngram-v1").grid(), Limits(concurrency=8)) == [list(range(64))]


@pytest.mark.parametrize(("held", "read"), [(10_000, 1), (100, 3)])
def test_a_short_trace_is_read_from_its_file_once(monkeypatch: pytest.MonkeyPatch, held: int, read: int) -> None:
    monkeypatch.setattr(rounds_module, "MOST_HELD", held)
    trace = Counted(some_requests(), each=5)
    again = Again(trace)
    for _ in range(3):
        assert [len(batch) for batch in again.batches(tokens=1000)] == [5, 5, 2]
    assert trace.read == read


def test_progress_of_several_readings_ends_at_the_whole_trace() -> None:
    told: list[tuple[int, int]] = []
    chosen = drafter("sglang-ngram")
    rows = some_requests()
    replay(InMemory(rows, each=5), chosen, chosen.grid()[:4], ONE, progress=lambda *both: told.append(both))
    assert told == sorted(told)
    assert told[-1] == (12, sum(len(one.prompt) + len(one.output) for one in rows))
    assert told[2] == (3, told[-1][1] // 4)


def test_categories_are_counted_together_where_their_tables_would_not_fit() -> None:
    wide = [Setting(k, 2, 4) for k in range(1018, 1025)]
    assert categories_that_fit(wide) == 0
    assert categories_that_fit(drafter("vllm-suffix").grid()) == 100
    assert categories_that_fit([Setting(300, 2, 4)]) == MOST_TABLES // (PHASES * 301**2) - 1 == 91
    ngram = drafter("vllm-ngram-v1")
    done = replay(InMemory(some_requests()), ngram, wide, ONE)
    assert list(done.settings[0].by_category) == [OTHERS]
    assert done.settings[0].by_category[OTHERS].steps == done.settings[0].total.steps
    assert done.seen.categories == {OTHERS: 12}
    text = "\n".join(lines(done, ngram, [], path="some.jsonl"))
    assert "Categories are counted together" in text
