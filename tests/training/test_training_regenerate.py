"""Answers written anew: every turn once, in the context the server saw, resumed after a failure."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.training.training_making import QWEN3, Said, make_target
from tests.training.training_server import AnsweringServer, answering

from draftworth.errors import MeasureError, UsageError
from draftworth.training import regenerate
from draftworth.training.answers import AnswerLog
from draftworth.training.asking import EMPTY, Server
from draftworth.training.recipe import RegenerateConfig
from draftworth.training.regenerate import Regeneration, Rewritten, turns
from draftworth.training.samples import chained
from draftworth.training.sources.base import Conversation


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AnsweringServer]:
    with answering(make_target(tmp_path / "target"), lambda last: f"<{last}>") as made:
        yield made


def talk(*said: str, name: str = "1", tools: bool = False) -> Conversation:
    roles = ("user", "assistant")
    messages = tuple({"role": roles[at % 2], "content": text} for at, text in enumerate(said))
    return Conversation(f"s/{name}", "s", "s", messages=messages, tools=({"type": "function"},) if tools else None)


class Asked:
    """A regeneration that is run, with what it counted."""

    def __init__(self, server: AnsweringServer, folder: Path, talks: list[Conversation], **more: Any) -> None:
        config = RegenerateConfig(url=server.url, **{"retries": 1, "concurrency": 2, **more})
        self.said = Said()
        with AnswerLog(folder / "answers.jsonl", "key") as log:
            asking = Regeneration(Server(server.url, "m"), config, log, self.said, encode=server.template.output)
            self.counts = asking.counts
            self.made: list[Rewritten] = asking.run(talks)


def test_every_turn_is_asked_for_with_the_new_answers_in_its_history(server: AnsweringServer, tmp_path: Path) -> None:
    made = Asked(server, tmp_path, [talk("a", "old", "b", "old")]).made
    assert [[m["content"] for m in body["messages"]] for body in server.asked] == [["a"], ["a", "<a>", "b"]]
    assert server.asked[0]["return_token_ids"] is True
    assert server.asked[0]["temperature"] == 0.7
    (one,) = made
    assert one.learned is None
    decode = server.template.decode
    assert [decode(ids.output) for ids in one.conversation.ids] == ["<a><|im_end|>", "<b><|im_end|>"]
    assert all(ids.exact for ids in one.conversation.ids)
    # The second turn's prompt goes on where the first one's answer ended: one sample.
    ((_, sample),) = chained(one.conversation.ids, [0, 0])
    assert sample.learned == 2 * (len("<a>") + 1)


def test_several_samples_differ_in_their_seed_and_name(server: AnsweringServer, tmp_path: Path) -> None:
    made = Asked(server, tmp_path, [talk("a")], samples=3).made
    assert [one.conversation.id for one in made] == ["s/1#1", "s/1#2", "s/1#3"]
    assert len({body["seed"] for body in server.asked}) == 3


def test_what_was_answered_is_not_asked_for_again(server: AnsweringServer, tmp_path: Path) -> None:
    Asked(server, tmp_path, [talk("a"), talk("b")])
    before = len(server.asked)
    made = Asked(server, tmp_path, [talk("a"), talk("b"), talk("c")]).made
    assert len(made) == 3
    assert [body["messages"][0]["content"] for body in server.asked[before:]] == ["c"]


def test_a_failing_server_is_asked_again_and_counted(server: AnsweringServer, tmp_path: Path) -> None:
    server.failures = [503]
    found = Asked(server, tmp_path, [talk("a")])
    assert len(found.made) == 1
    assert found.counts["requests that were repeated"] == 1


def test_too_many_failures_end_it_and_keep_what_was_answered(server: AnsweringServer, tmp_path: Path) -> None:
    server.failures = [200, 503, 503]
    with pytest.raises(MeasureError, match=r"1 of 2 conversations got no answer after 1 retries: .*503"):
        Asked(server, tmp_path, [talk("a"), talk("b")], concurrency=1)
    found = Asked(server, tmp_path, [talk("a"), talk("b")])
    assert len(found.made) == 2
    assert len(server.asked) == 2


def test_a_request_that_is_refused_for_good_is_counted_and_not_repeated(
    server: AnsweringServer, tmp_path: Path
) -> None:
    server.failures = [400]
    found = Asked(server, tmp_path, [talk("a"), talk("b")], concurrency=1)
    assert len(found.made) == 1
    assert found.counts == {f"{regenerate.REFUSED}: HTTP 400: scripted 400": 1}
    again = Asked(server, tmp_path, [talk("a"), talk("b")])
    assert len(again.made) == 1
    assert len(server.asked) == 1


def test_a_server_that_takes_no_further_fields_is_asked_without_them(server: AnsweringServer, tmp_path: Path) -> None:
    server.refuse_fields = True
    found = Asked(server, tmp_path, [talk("a")])
    (one,) = found.made
    assert one.conversation.ids == ()
    assert [m["content"] for m in one.conversation.messages] == ["a", "<a>"]
    assert one.learned == (1,)
    assert found.counts == {regenerate.NO_IDS: 1}


def test_an_answer_that_was_cut_ends_its_conversation(server: AnsweringServer, tmp_path: Path) -> None:
    server.finish = "length"
    found = Asked(server, tmp_path, [talk("a", "old", "b", "old")])
    assert len(server.asked) == 1
    assert len(found.made[0].conversation.ids) == 1
    assert found.counts == {regenerate.CUT: 1}


def test_an_empty_answer_is_counted(server: AnsweringServer, tmp_path: Path) -> None:
    server.answer = lambda _: ""
    server.with_ids = False
    found = Asked(server, tmp_path, [talk("a")])
    assert found.made == []
    assert found.counts == {EMPTY: 1}


def test_recorded_prompts_are_sent_as_ids(server: AnsweringServer, tmp_path: Path) -> None:
    from draftworth.training.sources.base import Ids  # noqa: PLC0415

    prompt = server.template.output("Say: ")
    one = Conversation("t/1", "t", "t", ids=(Ids(prompt, prompt[:1]),))
    (made,) = Asked(server, tmp_path, [one]).made
    assert server.asked[0]["prompt"] == prompt.tolist()
    assert server.template.decode(made.conversation.ids[0].output) == "<Say: ><|im_end|>"


def test_a_template_argument_is_sent(tmp_path: Path) -> None:
    with answering(make_target(tmp_path / "target", QWEN3), lambda _: "x") as server:
        config = RegenerateConfig(url=server.url)
        with AnswerLog(tmp_path / "a.jsonl", "key") as log:
            asking = Regeneration(
                Server(server.url, "m"),
                config,
                log,
                Said(),
                encode=server.template.output,
                arguments={"enable_thinking": False},
                seed=3,
            )
            asking.run([talk("a")])
        assert server.asked[0]["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_server_that_is_not_there_is_told_and_is_not_needed_for_what_is_answered(tmp_path: Path) -> None:
    with answering(make_target(tmp_path / "target"), lambda _: "x") as server:
        Asked(server, tmp_path, [talk("a")])
    assert len(Asked(server, tmp_path, [talk("a")]).made) == 1
    with pytest.raises(UsageError, match="connection refused"):
        Asked(server, tmp_path, [talk("a"), talk("b"), talk("c")])


def test_a_key_that_is_not_accepted_ends_it_at_once(server: AnsweringServer, tmp_path: Path) -> None:
    server.failures = [401] * 10
    with pytest.raises(MeasureError, match=r"HTTP 401: .*run again to resume"):
        Asked(server, tmp_path, [talk("a"), talk("b")], concurrency=1)
    assert len(server.failures) == 9


def test_a_model_that_is_not_served_is_told(server: AnsweringServer, tmp_path: Path) -> None:
    with AnswerLog(tmp_path / "a.jsonl", "key") as log:
        asking = Regeneration(
            Server(server.url, "other"),
            RegenerateConfig(url=server.url),
            log,
            Said(),
            encode=server.template.output,
        )
        with pytest.raises(UsageError, match="the model 'other' is not served; the server has: m"):
            asking.run([talk("a"), talk("b")])


def shown(*said: tuple[str, str]) -> list[tuple[list[str], str | None, bool]]:
    found = turns([{"role": role, "content": text} for role, text in said])
    return [([m["content"] for m in given], None if kept is None else kept["content"], on) for given, kept, on in found]


def test_where_answers_belong() -> None:
    u, a, t, s = "user", "assistant", "tool", "system"
    assert shown((s, "s"), (u, "1"), (a, "x"), (u, "2"), (a, "y")) == [(["s", "1"], None, True), (["2"], None, False)]
    assert shown((u, "1"), (a, "x"), (u, "2")) == [(["1"], None, True), (["2"], None, False)]
    assert shown((u, "1"), (u, "2")) == [(["1"], None, True), (["2"], None, False)]
    assert shown((u, "1"), (u, "2"), (a, "x")) == [(["1", "2"], None, False)]
    # A call whose result is recorded stays, and so does what comes of it.
    assert shown((u, "1"), (a, "call"), (t, "3"), (a, "x")) == [(["1"], "call", True), (["3"], None, False)]
    assert shown((a, "Welcome"), (u, "1"), (a, "x")) == [(["Welcome", "1"], None, False)]
    assert shown((s, "s")) == []
