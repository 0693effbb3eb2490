"""What a server is, whether the requests fit it, and that what it was sent does not come back in its errors."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.fakes.openai_server import Script, serving

from draftworth import redact
from draftworth.bench import run
from draftworth.bench.access import access
from draftworth.bench.base import Access, Closed, Prompt, Sampling, Target, Turn
from draftworth.bench.failures import status_line
from draftworth.bench.points import Point
from draftworth.bench.probes import fetch_text_sync, probe_sync
from draftworth.bench.server import Found, check_fits, look_at
from draftworth.errors import MeasureError, UsageError

POINT = Point(Closed(1), 64)
KEY = "sk-very-secret-123456"


def text(name: str, words: int, **changes: Any) -> Prompt:
    return Prompt(name, "c", ({"role": "user", "content": "word " * words},), **changes)


def fits(prompts: Sequence[Prompt], sweep: Sequence[Point] = (POINT,), **script: Any) -> str | None:
    """Return what is said of the prompts to a server of 512 tokens, and None where nothing is."""
    with serving(Script(tokenize=True, **script), max_model_len=512) as server:
        found = look_at(server.base_url, access=Access(), model=None, token_timeout_s=5)
        assert found.max_model_len == 512
        try:
            check_fits(found, prompts, sweep)
        except UsageError as error:
            return str(error)
        return None


def test_a_prompt_longer_than_the_context_is_named_with_its_tokens_and_the_limit() -> None:
    # The template adds four: begin, turn, role, answer.
    said = fits([text("short", 5), text("long", 508), text("fits", 507)])
    assert said is not None
    assert said.startswith("prompt 'long' has 512 tokens, which leaves no room for an answer in the server's context")
    assert "512 tokens (max_model_len)" in said
    assert fits([text("fits", 507)]) is None, "vLLM cuts the answer at the context"


def test_recorded_token_ids_are_counted_and_a_conversation_counts_whole() -> None:
    assert "prompt 'ids' has 512 tokens" in str(fits([Prompt("ids", "c", token_ids=(1,) * 512)]))
    assert fits([Prompt("ids", "c", token_ids=(1,) * 511)]) is None
    talk = text("talk", 300, turns=(Turn("more " * 300, "an answer"),))
    assert "prompt 'talk' has" in str(fits([talk]))
    assert "with all its turns" in str(fits([talk]))


@pytest.mark.parametrize(
    ("point", "said"),
    [
        (Point(Closed(1), 513), "max_tokens: 513 is more than the server's context of 512 tokens"),
        (Point(Closed(1), 64, 530), "context_tokens: 530 leaves no room"),
        (Point(Closed(1), 512, 500), None),
    ],
)
def test_lengths_of_a_sweep_fit_the_context(point: Point, said: str | None) -> None:
    found = fits([text("a", 3)], (POINT, point))
    assert found is None if said is None else said in str(found)


def test_only_the_longest_few_are_asked_about_and_only_where_they_could_be_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    async def count(_target: Target, messages: Sequence[Any]) -> int:
        asked.append(len(messages[0]["content"]))
        return 1

    monkeypatch.setattr("draftworth.bench.server.count_chat", count)
    found = Found(Target("http://127.0.0.1:9", "m"), None, 512)
    check_fits(found, [text(f"p-{n}", n) for n in range(100, 1000, 100)], [POINT])
    assert asked == [5 * n for n in (900, 800, 700, 600, 500)]
    asked.clear()
    check_fits(found, [text("p", 200)], [POINT])
    assert asked == []


def test_where_the_server_does_not_tell_nothing_is_refused() -> None:
    long = [text("long", 5000)]
    check_fits(Found(Target("http://127.0.0.1:9", "m"), None), long, [POINT])
    with serving(Script(), max_model_len=512) as server:
        check_fits(look_at(server.base_url, access=Access(), model=None, token_timeout_s=5), long, [POINT])


# --- secrets


def test_an_error_that_echoes_the_headers_shows_no_value_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    let_in = access(api_key_env="MY_KEY", headers={"X-Team": "team-blue-42"})
    with serving(Script(echo_headers=True)) as server:
        target = Target(server.base_url, "fake/model-1b", access=let_in)
        prompts = [text("p", 3)]
        (row,) = run.measure_sync(target, prompts, Sampling(8), arm="", block=1, warmup=0, retries=0).rows
        with pytest.raises(MeasureError) as refused:
            probe_sync(server.base_url, model="fake/model-1b", access=let_in)
    for said in (str(row.error), str(refused.value)):
        assert "HTTP 400" in said
        assert "(hidden)" in said
        assert "very-secret" not in said
        assert "sk-v" not in said, "not the part that was left when the message was cut either"
        assert "team-blue" not in said
    with serving(Script(api_key="another")) as server, pytest.raises(MeasureError) as not_let_in:
        fetch_text_sync(server.base_url, "/v1/models", access=let_in)
    assert "HTTP 401" in str(not_let_in.value)


@pytest.mark.parametrize(
    ("line", "headers", "shown"),
    [
        (f"bad key {KEY}!", {"Authorization": f"Bearer {KEY}"}, "bad key (hidden)!"),
        (f"got 'Bearer {KEY}'", {"Authorization": f"Bearer {KEY}"}, "got '(hidden)'"),
        ("got Bearer sk-very-s…; no", {"Authorization": f"Bearer {KEY}"}, "got (hidden)…; no"),
        ("got sk-very-s… and more", {"X-Key": KEY}, "got (hidden)… and more"),
        ("the first: abcde", {"X-Short": "abcde"}, "the first: abcde"),
        ("identity", {"Accept-Encoding": "identity"}, "identity"),
        ("a plain word of mine", {"X-About": "plain text"}, "a plain word of mine"),
    ],
)
def test_values_of_headers_are_hidden(line: str, headers: dict[str, str], shown: str) -> None:
    assert redact.values(line, headers) == shown


def test_advice_that_names_the_option_for_a_key_stays_readable() -> None:
    advice = status_line(401, '{"error": "Unauthorized"}')
    assert redact.text(advice) == advice
    assert "--api-key-env" in advice
