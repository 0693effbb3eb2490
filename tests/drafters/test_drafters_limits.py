"""How large a replay may be asked for."""

from pathlib import Path

import pytest
from tests.helpers import run_cli

from draftworth.drafters import CHOICES, drafter
from draftworth.drafters.base import Setting
from draftworth.drafters.limits import MOST_CELLS, check_size
from draftworth.errors import UsageError


@pytest.mark.parametrize("name", CHOICES)
def test_every_drafter_bounds_k(name: str) -> None:
    with pytest.raises(UsageError, match=r"10000|always drafts 8"):
        drafter(name).settings(k=[10_000])


def test_tables_of_all_settings_together_are_bounded() -> None:
    check_size([Setting(1024)] * 7)
    check_size([Setting(24)] * 112)
    check_size([])
    with pytest.raises(UsageError, match=r"8 settings with k up to 1,024 .* at most 7"):
        check_size([Setting(1024)] * 8)
    assert 7 * 1025**2 <= MOST_CELLS < 8 * 1025**2


@pytest.mark.parametrize("name", CHOICES)
def test_the_grid_of_every_drafter_fits(name: str) -> None:
    check_size(drafter(name).grid())


def test_replay_refuses_what_would_not_end(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"request_id": "a", "prompt_token_ids": [1, 2, 3], "output_token_ids": [1, 2, 3, 1, 2]}\n')
    for words in (("--k", "10000"), ("--concurrency", "10000")):
        done = run_cli("replay", path, "--drafter", "vllm-ngram-v1", *words)
        assert (done.code, done.out) == (1, "")
        assert len([line for line in done.err.splitlines() if line.startswith("draftworth: ")]) == 1
    named = run_cli("replay", path, "--k", "3", "--json")
    assert named.code == 0
    assert named.json["drafter"]["name"] == "vllm-ngram-v1"
    assert "No --drafter was named, so it is vllm-ngram-v1" in named.err


def test_max_tokens_is_taken_where_drafts_are_cut_there(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"prompt_token_ids": [9, 1, 2, 3, 4, 5], "output_token_ids": [1, 2, 3, 4, 7]}\n')
    words = ("--drafter", "llamacpp-ngram-simple", "--k", "2", "--set", "size_n=2", "--json")
    drafted = []
    for limit in ((), ("--max-tokens", "4"), ("--max-tokens", "3")):
        done = run_cli("replay", path, *words, *limit)
        assert done.code == 0
        drafted.append(done.json["settings"][0]["drafted"])
        assert done.json["drafter"]["max_tokens"] == (int(limit[1]) if limit else None)
    # Behind the second output token two may follow; 4 - 2 - 1 = 1 is drafted, then none.
    assert drafted == [2, 1, 0]
    refused = run_cli("replay", path, "--drafter", "vllm-ngram-v1", "--max-tokens", "4")
    assert refused.code == 1
    assert "--max-tokens: vllm-ngram-v1 does not cut drafts there" in refused.err
    assert run_cli("replay", path, "--drafter", "llamacpp-ngram-simple", "--max-tokens", "0").code == 1
