"""Answers written anew by the target over HTTP: what a head learns is what the target itself says.

Every turn of a conversation is asked for in order, with the new answers in its history. An answer whose call of a tool
was answered in the record is asked for too and learned, but the conversation goes on as it was recorded: nobody can run
the tool again. Recorded prompts (ids) are sent as they are, to `/v1/completions`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from draftworth.errors import MeasureError
from draftworth.training.answers import Answer, AnswerLog
from draftworth.training.asking import EMPTY, RESUME, Asking, Server, api_message, ids_of
from draftworth.training.base import Tell
from draftworth.training.capture import Capture
from draftworth.training.dedupe import conversation_key
from draftworth.training.recipe import RegenerateConfig
from draftworth.training.sources.base import ASSISTANT, TOOL, USER, Conversation, Ids

if TYPE_CHECKING:
    import aiohttp

REFUSED = "the server refuses the request"
FAILED = "no answer after all retries"
CUT = "conversations ended early: an answer reached max_tokens"
NO_IDS = "answers without token ids from the server; their ids are made of text"
_MOST_FAILED = 0.02


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A conversation with new answers.

    Attributes:
        conversation: with ids where the server told them, else with messages; its id ends in the sample's number where
            there are several.
        learned: positions of the messages that are new; None for ids.
        origin: position of the conversation that it was made of.
    """

    conversation: Conversation
    learned: tuple[int, ...] | None
    origin: int


class Regeneration:
    """Asks a server for the answers of conversations, resuming what a log holds.

    Args:
        server: where.
        config: how.
        log: open; answers are appended to it.
        tell: takes progress.
        encode: makes ids of an answer's text, for servers that tell none.
        arguments: of the chat template.
        seed: of the server's sampling.
        capture: takes the states of every answer; None where they are not kept.

    Attributes:
        counts: answers by what became of them.
    """

    def __init__(
        self,
        server: Server,
        config: RegenerateConfig,
        log: AnswerLog,
        tell: Tell,
        *,
        encode: Callable[[str], NDArray[np.int32]],
        arguments: Mapping[str, Any] | None = None,
        seed: int = 0,
        capture: Capture | None = None,
    ) -> None:
        self._encode = encode
        self._server, self._config, self._arguments = server, config, dict(arguments or {})
        self._log, self._tell = log, tell
        self._asking = Asking(server, config, seed, capture)
        self._capture = capture
        self._done = self._total = self._tokens = 0
        self.counts: Counter[str] = Counter()

    def run(self, conversations: Sequence[Conversation]) -> list[Rewritten]:
        """Return the conversations with new answers, in their order, every sample of one behind each other.

        Raises:
            UsageError: there is no such server, or it does not serve the model.
            RefusedError: states are to be kept, and the server does not store them.
            MeasureError: the server is gone, or more than 2 % of the conversations got no answer. What was answered is
                kept; running again resumes.
        """
        jobs = [(at, sample) for at in range(len(conversations)) for sample in range(self._config.samples)]
        self._total = len(jobs)
        try:
            found = asyncio.run(self._all(conversations, jobs))
        except ExceptionGroup as errors:
            # One task's failure ends the others; that one is what a person must know.
            raise errors.exceptions[0] from None
        self.counts += self._asking.counts
        if self._capture is not None:
            self.counts += self._capture.counts
            if self._capture.first_unsound:
                self._tell.line(f"the first states that were not kept: {self._capture.first_unsound}")
        failed = self.counts[FAILED]
        if failed > _MOST_FAILED * len(jobs):
            raise MeasureError(
                f"{failed} of {len(jobs)} conversations got no answer after {self._config.retries} retries: "
                f"{self._asking.last_error}; {RESUME}"
            )
        return [made for job in jobs if (made := found.get(job)) is not None]

    async def _all(
        self, conversations: Sequence[Conversation], jobs: Sequence[tuple[int, int]]
    ) -> dict[tuple[int, int], Rewritten]:
        from draftworth.bench.probes import new_session  # noqa: PLC0415 - lazy: aiohttp

        waiting = iter(jobs)
        found: dict[tuple[int, int], Rewritten] = {}

        async def work(session: "aiohttp.ClientSession") -> None:
            for at, sample in waiting:
                made = await self._job(session, conversations[at], at, sample)
                if made is not None:
                    found[at, sample] = made
                self._done += 1
                self._tell.count(self._done, self._total, f"conversations, {self._tokens:,} tokens answered")

        async with new_session(self._config.timeout_s, self._server.access) as session, asyncio.TaskGroup() as group:
            for _ in range(min(self._config.concurrency, len(jobs))):
                group.create_task(work(session))
        return found

    async def _job(self, session: "aiohttp.ClientSession", one: Conversation, at: int, sample: int) -> Rewritten | None:
        key = conversation_key(one)
        name = one.id if self._config.samples == 1 else f"{one.id}#{sample + 1}"
        one = replace(one, id=name)
        if one.messages:
            return await self._chat(session, one, key, at, sample)
        body: dict[str, Any] = {"prompt": [int(token) for token in one.ids[0].prompt]}
        answer = await self._answer(session, "/v1/completions", body, Answer(key, sample, 0))
        if answer is None:
            return None
        answer.prompt_ids = body["prompt"]
        ids = ids_of(answer)
        if ids is None:
            self.counts[NO_IDS] += 1
            ids = Ids(one.ids[0].prompt, self._encode(str(answer.message["content"])), exact=False)
        return Rewritten(replace(one, ids=(ids,)), None, at)

    async def _chat(
        self, session: "aiohttp.ClientSession", one: Conversation, key: str, at: int, sample: int
    ) -> Rewritten | None:
        history: list[Mapping[str, Any]] = []
        learned: list[int] = []
        asked: list[Ids] = []
        whole = True
        for turn, (given, recorded, goes_on) in enumerate(turns(one.messages)):
            history += given
            body: dict[str, Any] = {"messages": [api_message(message) for message in history]}
            if one.tools:
                body["tools"] = list(one.tools)
            if self._arguments:
                body["chat_template_kwargs"] = self._arguments
            answer = await self._answer(session, "/v1/chat/completions", body, Answer(key, sample, turn))
            if answer is None:
                break
            ids = ids_of(answer)
            whole = whole and ids is not None
            if ids is None:
                self.counts[NO_IDS] += 1
            else:
                asked.append(ids)
            if recorded is not None:
                history.append(recorded)
                continue
            learned.append(len(history))
            history.append(answer.message)
            if goes_on and answer.finish == "length":
                self.counts[CUT] += 1
                break
        if whole and asked:
            return Rewritten(replace(one, messages=(), ids=tuple(asked)), None, at)
        return Rewritten(replace(one, messages=tuple(history)), tuple(learned), at) if learned else None

    async def _answer(
        self, session: "aiohttp.ClientSession", path: str, body: dict[str, Any], place: Answer
    ) -> Answer | None:
        """Return an answer, out of the log or from the server; None where there is none, which is counted."""
        known = self._log.known.get(place.place)
        if known is None:
            known = await self._asking.ask(session, path, body, place)
            if known is None:
                self.counts[FAILED] += 1
                return None
            self._log.add(known)
        self._tokens += len(known.output_ids or ())
        if known.error:
            self.counts[f"{REFUSED}: {known.error}" if known.error != EMPTY else EMPTY] += 1
            return None
        return known


def turns(
    messages: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[list[Mapping[str, Any]], Mapping[str, Any] | None, bool]]:
    """Yield where answers belong: the messages given before, the recorded answer that must stay, whether it goes on.

    A recorded answer stays where a tool answered it. In a conversation without any answer, every message of the user is
    answered.
    """
    answered = any(one["role"] == ASSISTANT for one in messages)
    given: list[Mapping[str, Any]] = []
    asked = False
    for at, one in enumerate(messages):
        following = messages[at + 1] if at + 1 < len(messages) else None
        if one["role"] == ASSISTANT:
            if not asked:
                given.append(one)  # a greeting in front of the first question
                continue
            stays = following is not None and following["role"] == TOOL
            yield given, one if stays else None, following is not None
            given = []
            continue
        given.append(one)
        asked = asked or one["role"] == USER
        last_of_user = following is None or (not answered and one["role"] == USER and following["role"] == USER)
        if asked and last_of_user:
            yield given, None, following is not None
            given = []
