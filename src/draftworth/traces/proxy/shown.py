"""What a person sees of a proxy: where it listens, how the recording stands, what ended and why."""

import time
from typing import IO, Any

from draftworth.reports.words import plural
from draftworth.traces.proxy.answers import NO_IDS, NO_PROMPT_IDS
from draftworth.traces.proxy.run import Proxy
from draftworth.trials.progress import Progress, duration

_EVERY_S = 10.0
_MANY = 20
_NOT_ASKED = (
    "answers carry token ids only where the client asks for them; --ask-ids asks for them (of vLLM and SGLang; other "
    "servers tell none)"
)


class Shown:
    """Tells on a stream; never waits for it."""

    def __init__(self, stream: IO[str]) -> None:
        self._progress = Progress(stream).__enter__()
        self._began = time.monotonic()
        self._said_at = time.monotonic()
        self._said: set[str] = set()

    def listening(self, proxy: Proxy) -> None:
        """The proxy takes connections."""
        plan = proxy.plan
        scheme = "https" if plan.upstream.tls else "http"
        self._progress.line(
            f"{proxy.url} passes on to {scheme}://{plan.upstream.authority}, recording to {plan.out}; Ctrl-C ends"
        )
        if _needs_asking(proxy):
            self._progress.line(_NOT_ASKED)
        self._began = time.monotonic()

    def tick(self, proxy: Proxy) -> None:
        """Tell what is new."""
        recording, plan = proxy.recording, proxy.plan
        if recording.stopped is not None:
            self._once(f"recording stopped: {recording.stopped}; traffic is passed on")
        elif recording.finished and not plan.ends and proxy.ending is None:
            said = f"complete: {plan.out}" if recording.rows else "over, and nothing was recorded"
            self._once(f"the recording is {said}; traffic is passed on, Ctrl-C ends")
        if not recording.rows and _without_ids(proxy) >= _MANY:
            self._once(f"the first {_MANY} answers had no token ids: nothing is recorded so far{_advice(proxy)}")
        if proxy.ending is not None:
            self._once("ending: no new connections, running streams go on for up to " + duration(plan.drain_s))
        now = time.monotonic()
        if now - self._said_at >= _EVERY_S and not recording.finished and recording.stopped is None:
            self._said_at = now
            self._progress.line(f"{duration(now - self._began):>10}   {_state(proxy)}{self._left(proxy, now)}")

    def _left(self, proxy: Proxy, now: float) -> str:
        """Say how long the recording still takes, where it has an end."""
        plan, passed = proxy.plan, now - self._began
        left = [] if plan.duration_s is None else [plan.duration_s - passed]
        if plan.max_requests is not None and proxy.recording.recorded:
            left.append(passed * (plan.max_requests / proxy.recording.recorded - 1))
        return f" - about {duration(max(0.0, min(left)))} left" if left else ""

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._progress.line(text)

    def close(self) -> None:
        """Tell what waits to be told."""
        self._progress.__exit__(None, None, None)


def _state(proxy: Proxy) -> str:
    told = proxy.recording
    out = sum(told.left_out.values())
    return (
        f"{told.recorded:,} requests recorded ({told.output_tokens:,} output tokens), {out:,} left out, "
        f"{proxy.accepted:,} connections"
    )


def summary(proxy: Proxy) -> list[str]:
    """Return the lines for a person, once it has ended."""
    told, plan = proxy.recording, proxy.plan
    lines = [
        f"{plan.out}: {plural(told.rows, 'row')} of {plural(told.recorded, 'request')}",
        f"{told.prompt_tokens:,} prompt and {told.output_tokens:,} output tokens",
    ]
    if not told.rows:
        lines = [f"nothing was recorded: there is no {plan.out}{_advice(proxy) if _without_ids(proxy) else ''}"]
    lines.append(f"{plural(told.seen, 'completion request was', 'completion requests were')} seen")
    if told.sampled_out:
        lines.append(f"{told.sampled_out:,} not in the sample (--sample {plan.sample:g})")
    if told.cut:
        lines.append(f"{told.cut:,} rows were cut off by the client or the server; their ids up to there are exact")
    if told.inexact:
        lines.append(f"{told.inexact:,} rows are inexact: their ids were made from text")
    lines += [f"{count:,} left out: {reason}" for reason, count in told.left_out.items()]
    lines += [f"{count:,} not asked for ids: {reason}" for reason, count in proxy.not_asked.items()]
    if told.lost or proxy.tap.lost:
        count = max(told.lost, proxy.tap.lost)
        lines.append(
            f"{count:,} times a connection was not recorded for a while: there was too much at once (--queue-mb)"
        )
    if told.stopped is not None:
        lines.append(f"recording stopped: {told.stopped}")
    if proxy.cut_off:
        lines.append(f"{proxy.cut_off:,} connections were still under way at the end and were cut off")
    return lines


def _needs_asking(proxy: Proxy) -> bool:
    """Whether only answers whose clients ask for ids can be recorded."""
    return proxy.plan.asked is None and proxy.plan.tokenizer is None


def _without_ids(proxy: Proxy) -> int:
    left = proxy.recording.left_out
    return left.get(NO_IDS, 0) + left.get(NO_PROMPT_IDS, 0)


def _advice(proxy: Proxy) -> str:
    return "; clients do not ask for token ids: record again with --ask-ids" if _needs_asking(proxy) else ""


def document(proxy: Proxy, seconds: float) -> dict[str, Any]:
    """Return the same as JSON."""
    told = proxy.recording.document()
    told["lost"] = max(told["lost"], proxy.tap.lost)
    return {
        "trace": str(proxy.plan.out),
        "seconds": round(seconds, 3),
        "connections": proxy.accepted,
        "cut_off": proxy.cut_off,
        "not_asked": proxy.not_asked,
        **told,
    }
