from typing import Any

import pytest

from draftworth.engines.base import Doubt, Engine, Planned, StartupFacts
from draftworth.engines.counts import FIELDS
from draftworth.engines.sglang import SGLang
from draftworth.engines.sglang.known import ALGORITHMS, READ, SETTINGS, Span, unsure

SERVER = ("sglang", "serve", "--model-path", "m", "--enable-metrics", "--max-running-requests", "64")
EAGLE3: dict[str, Any] = {"algorithm": "EAGLE3", "draft_model_path": "d", "num_draft_tokens": 4}
NGRAM: dict[str, Any] = {"algorithm": "NGRAM", "num_draft_tokens": 8}


def found(speculation: dict[str, Any], version: str | None) -> dict[str, Doubt]:
    arm = Planned(name="v", command=SERVER, speculation=speculation)
    return {one.code: one for one in SGLang().doubts(arm, StartupFacts(version=version))}


def severity(doubts: dict[str, Doubt], code: str) -> str | None:
    return doubts[code].severity if code in doubts else None


@pytest.mark.parametrize(
    ("algorithm", "last_without", "first_with"),
    [
        ("NGRAM", "0.4.6", "0.5.3"),
        ("STANDALONE", "0.4.6", "0.5.3"),
        ("DFLASH", "0.5.10", "0.5.11"),
        ("FROZEN_KV_MTP", "0.5.11", "0.5.12"),
        ("DSPARK", "0.5.14", "0.5.16"),
        ("UNO", "0.5.19", "0.5.23"),
    ],
)
def test_algorithms_are_known_from_a_release_on(algorithm: str, last_without: str, first_with: str) -> None:
    config = {"algorithm": algorithm, "draft_model_path": "d"}
    assert severity(found(config, last_without), "algorithm_too_new") == "refused"
    assert severity(found(config, first_with), "algorithm_too_new") is None
    assert severity(found(config, None), "algorithm_too_new") == "note"


def test_a_release_that_was_not_read_is_not_called_certain() -> None:
    assert severity(found(NGRAM, "0.5.1"), "algorithm_too_new") == "unknown"
    assert severity(found({"algorithm": "DSPARK"}, "0.5.15"), "algorithm_too_new") == "unknown"
    assert unsure(Span((0, 5, 3), (0, 5, 9)), (0, 5, 9)) is False


@pytest.mark.parametrize(
    ("setting", "known", "not_known"),
    [
        ("ngram_branch_length", "0.5.9", "0.5.10"),
        ("ngram_max_trie_depth", "0.5.10", "0.5.9"),
        ("adaptive", "0.5.11", "0.5.10"),
        ("draft_window_size", "0.5.12", "0.5.11"),
        ("skip_dp_mlp_sync", "0.5.19", "0.5.23"),
        ("draft_kv_cache_dtype", "0.5.18", "0.5.17"),
    ],
)
def test_settings_are_known_to_their_releases(setting: str, known: str, not_known: str) -> None:
    config = {**EAGLE3, setting: 1}
    assert severity(found(config, known), "setting_of_other_release") is None
    assert severity(found(config, not_known), "setting_of_other_release") == "refused"


def test_every_setting_and_algorithm_begins_and_ends_with_a_release_that_was_read() -> None:
    for span in (*SETTINGS.values(), *ALGORITHMS.values()):
        assert span.first in READ
        assert span.last is None or span.last in READ


def given_counts(
    speculation: dict[str, Any] | None, version: str | None, command: tuple[str, ...] = SERVER
) -> set[str]:
    told = SGLang().gives(Planned(name="v", command=command, speculation=speculation), StartupFacts(version=version))
    assert [one.name for one in told] == list(FIELDS)
    assert all(one.how for one in told)
    return {one.name for one in told if one.given}


def test_what_a_server_will_tell_depends_on_its_release_and_flags() -> None:
    assert given_counts(EAGLE3, "0.5.19") == set(FIELDS)
    assert given_counts(EAGLE3, "0.5.18") == {"steps", "drafting_steps", "accepted", "emitted"}
    assert given_counts(EAGLE3, "0.5.18", ("sglang", "serve")) == set()
    assert given_counts(EAGLE3, "0.5.12") == {"emitted"}
    assert given_counts(EAGLE3, None) == set()
    assert given_counts(None, "0.5.23") == {"emitted"}
    assert given_counts(None, "0.5.23", ("sglang", "serve")) == set()


def test_the_adapter_is_an_engine() -> None:
    engine: Engine = SGLang("0.5.23")
    assert (engine.name, engine.title, engine.version) == ("sglang", "SGLang", "0.5.23")
    assert engine.json_pages[0] == "/server_info"
    assert engine.log_reader().facts().version == "0.5.23"
