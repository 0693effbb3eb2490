"""What a draft that cannot be replayed may bring: by hand, from files and steps that are known exactly."""

import math
from pathlib import Path

import numpy as np
import pytest
from tests.heads import heads_making as making
from tests.predict.test_predict_speedup import Stairs

from draftworth.search.base import Candidate
from draftworth.search.belief import Belief
from draftworth.search.bounds import bounds, draft_share
from draftworth.search.grid import candidate_of
from draftworth.search.policy import next_candidate
from draftworth.search.rules import Rules

# Weights by hand: attention 64 x 64 twice and 32 x 64 twice, three matrices of 64 x 128, two norms.
LAYER = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128 + 2 * 64
LM_HEAD = 96 * 64
TARGET = 8 * LAYER + 64 + LM_HEAD
EAGLE3 = (64 * 192 + 64) + 48 * 64 + (LAYER + 64 * 64 + 2 * 32 * 64) + 64
"""fc and its norm, its own lm_head, a layer whose attention reads twice the width, and one norm more."""
SHARES = {
    "draft_model": (LAYER + 64 + LM_HEAD) / TARGET,
    "eagle3": EAGLE3 / TARGET,
    "medusa": (64 * 64 + 64 + LM_HEAD) / TARGET,
}


def one(method: str, k: int, model: Path | None = None) -> Candidate:
    config = {"method": method, "num_speculative_tokens": k}
    return candidate_of(method, config if model is None else {**config, "model": str(model)})


@pytest.mark.parametrize("method", SHARES)
def test_a_pass_takes_the_share_of_the_weights_it_reads(method: str, tmp_path: Path) -> None:
    target = making.target().write(tmp_path / "target")
    draft = making.MAKERS[method]().write(tmp_path / "draft")
    # Both heads of Medusa draft in one pass.
    assert draft_share(one(method, 2, draft), target) == pytest.approx(SHARES[method])


def test_a_head_without_an_lm_head_reads_the_targets(tmp_path: Path) -> None:
    target, draft = making.target().write(tmp_path / "target"), making.eagle().write(tmp_path / "draft")
    read = 64 * 128 + (LAYER - 64) + LM_HEAD
    assert draft_share(one("eagle", 3, draft), target) == pytest.approx(read / TARGET)


def test_an_mtp_layer_is_one_of_the_targets(tmp_path: Path) -> None:
    target = making.mtp_target().write(tmp_path / "target")
    assert draft_share(one("mtp", 1), target) == pytest.approx(((TARGET - LM_HEAD) / 8 + LM_HEAD) / TARGET)


def test_what_files_do_not_tell_is_not_guessed(tmp_path: Path) -> None:
    target = making.target().write(tmp_path / "target")
    for candidate, served in ((one("eagle3", 3, tmp_path / "gone"), target), (one("eagle3", 3, target), None)):
        assert draft_share(candidate, served) is None
        assert bounds(candidate, Stairs(), {1: 10}, served) is None


def test_the_ends_are_nothing_and_everything_accepted(tmp_path: Path) -> None:
    target, draft = making.target().write(tmp_path / "target"), making.draft_model().write(tmp_path / "draft")
    found = bounds(one("draft_model", 3, draft), Stairs(), {1: 10}, target)
    assert found is not None
    # A step verifies 4 tokens, in 4 ms, has 3 ms of the engine's mode, and drafts 3 of them; a plain one takes 2.5 ms.
    step = (4 + 3) / 2.5 + 3 * SHARES["draft_model"]
    assert found[1].value == pytest.approx((math.log(1 / step) + math.log(4 / step)) / 2)
    assert found[1].sd == pytest.approx(math.log(4) / (2 * 1.96))


def test_how_much_is_accepted_is_one_figure_at_all_loads(tmp_path: Path) -> None:
    target, draft = making.target().write(tmp_path / "target"), making.draft_model().write(tmp_path / "draft")
    small = one("draft_model", 3, draft)
    loads = dict.fromkeys((1, 2, 4), 10)
    told = bounds(small, Stairs(idle=0.0, drafting=0.0), loads, target)
    assert told is not None
    belief = Belief([small.model_copy(update={"bounds": told})], list(loads))
    mean = sum(each.value for each in told.values()) / 3
    sd = sum(each.sd for each in told.values()) / 3
    weights = np.full(3, 1 / 3)
    # The mean over the loads spans what it spans at each: nothing to everything accepted.
    assert weights @ belief.mean[0] == pytest.approx(mean)
    assert math.sqrt(weights @ belief.cov @ weights) == pytest.approx(sd, rel=0.05)


def test_a_draft_in_one_pass_and_one_whose_files_do_not_tell(tmp_path: Path) -> None:
    target, draft = making.target().write(tmp_path / "target"), making.eagle3().write(tmp_path / "draft")
    told = {"method": "eagle3", "model": str(draft), "num_speculative_tokens": 4}
    assert draft_share(candidate_of("a", {**told, "parallel_drafting": True}), target) == pytest.approx(
        EAGLE3 / TARGET / 4
    )
    assert draft_share(candidate_of("a", {**told, "quantization": "fp8"}), target) is None
    assert draft_share(one("draft_model", 3), target) is None, "no model is named"


@pytest.mark.parametrize("config", [{"method": "ngram", "num_speculative_tokens": 3}, {"method": "suffix"}])
def test_what_is_replayed_has_no_bounds(config: dict[str, object]) -> None:
    assert bounds(candidate_of("a", config), Stairs(), {1: 10}, None) is None


def test_the_target_as_its_own_draft_is_not_worth_a_start_and_a_small_one_is(tmp_path: Path) -> None:
    target, draft = making.target().write(tmp_path / "target"), making.draft_model().write(tmp_path / "draft")
    steps = Stairs(idle=0.0, drafting=0.0)
    itself, small = (one("draft_model", 3, folder) for folder in (target, draft))
    some = [
        each.model_copy(update={"name": name, "bounds": bounds(each, steps, {1: 10}, target)})
        for name, each in (("itself", itself), ("small", small))
    ]
    rules = Rules(loads=(1,))
    assert next_candidate(some, [], rules).next == "small"
    left = next_candidate(some[:1], [], rules)
    # 4 tokens for 4 / 2.5 + 3 steps at best.
    assert left.next is None
    assert "chance" in left.why
    assert Belief(some, [1]).of("itself")[1].value == pytest.approx(math.log(1 / 4.6) / 2 + math.log(4 / 4.6) / 2)
