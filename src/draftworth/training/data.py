"""The stage `data`: conversations become samples, token ids with a loss mask.

Read, grouped and split; what must stay unseen and what is repeated left out; answers written anew, where the recipe
says so; rendered, masked, cut; then `train.parquet` and `held_out.parquet`.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from draftworth.errors import UsageError
from draftworth.traces.base import BadRows
from draftworth.training.answers import AnswerLog, settings_key
from draftworth.training.asking import Server
from draftworth.training.base import StageManifest, StageName, Tell
from draftworth.training.capture import CAPTURED, Capture, made_from
from draftworth.training.columns import SampleWriter
from draftworth.training.data_lines import findings, nothing_left
from draftworth.training.digests import digests
from draftworth.training.reading import Read, read_conversations
from draftworth.training.recipe import Recipe
from draftworth.training.recipe_file import source_name
from draftworth.training.regenerate import Regeneration, Rewritten
from draftworth.training.samples import Sample, chained, cut
from draftworth.training.shape import target_shape
from draftworth.training.sources import source_of
from draftworth.training.sources.base import Conversation
from draftworth.training.stages import (
    file_digest,
    package_inputs,
    prepare,
    section_digest,
    target_inputs,
    write_manifest,
)
from draftworth.training.target import vocabulary_of
from draftworth.training.template import ChatTemplate

TRAIN, HELD_OUT = "train", "held_out"
ANSWERS = "answers.jsonl"
TOO_LONG = "too long: max_tokens leaves no learned token"
NOTHING_LEARNED = "no token to learn from"
OUTSIDE = "an id outside of the target's vocabulary"
_AT_A_TIME = 256
_Group = tuple[int, list[Rewritten]]
"""A group's number and its conversations."""
_HOW = {"url", "concurrency", "retries", "timeout_s", "api_key_env", "states"}
"""Fields of `[data.regenerate]` that change how answers are fetched, not what they are."""


def inputs(recipe: Recipe, folder: Path) -> Mapping[str, str]:
    """Return everything the samples depend on; see `StageModule.inputs`."""
    data = recipe.data
    kept = data.model_dump(mode="json", exclude={"sources": {"__all__": {"path"}}, "exclude": True, "regenerate": _HOW})
    found = {"recipe.data": section_digest(kept), **target_inputs(recipe.target)}
    for source in data.sources:
        whole = "\n".join(digests(source_of(source).files(source), folder)).encode()
        found[f"source.{source_name(source)}"] = f"sha256:{hashlib.sha256(whole).hexdigest()}"
    for number, digest in enumerate(digests(data.exclude, folder)):
        found[f"exclude[{number}]"] = digest
    return {**found, **package_inputs("tokenizers", "jinja2")}


@dataclass(slots=True)
class _Part:
    """One of the two files while it is written."""

    writer: SampleWriter
    counts: Counter[str] = field(default_factory=lambda: Counter({"samples": 0}))
    sources: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, one: Conversation, sample: Sample) -> None:
        self.writer.add(one.id, one.source, one.category, sample)
        for name, count in (("samples", 1), ("tokens", len(sample.ids)), ("loss_tokens", sample.learned)):
            self.counts[name] += count
            self.sources.setdefault(one.source, Counter())[name] += count
        self.counts["inexact_samples"] += not sample.exact
        self.counts["longest"] = max(self.counts["longest"], len(sample.ids))


@dataclass(slots=True)
class _Work:
    """What the steps of the stage share."""

    recipe: Recipe
    own: Path
    template: ChatTemplate
    tell: Tell
    bad: BadRows = field(default_factory=BadRows)
    counts: Counter[str] = field(default_factory=Counter)


def run(recipe: Recipe, folder: Path, tell: Tell) -> StageManifest:
    """Make the samples; see `StageModule.run`.

    Raises:
        UsageError: a source cannot be read, or nothing to learn from is left; says what was left out and why.
        MeasureError: answers are to be written anew and the server is gone.
    """
    began = time.monotonic()
    own = StageName.DATA.folder(folder)
    prepare(own)
    made_from = inputs(recipe, folder)
    template = ChatTemplate(recipe.target, recipe.data.template_args, learn_thinking=recipe.data.thinking)
    work = _Work(recipe, own, template, tell)
    read = read_conversations(recipe, template, work.bad, tell)
    work.counts.update(read.counts)
    parts = _write(work, read, _rewritten(work, read))
    for name, part in parts.items():
        work.counts.update({f"{name}_{what}": count for what, count in part.counts.items()})
    work.counts.update({f"note: {what}": count for what, count in template.notes.items()})
    work.counts.update({f"left out: {what}": count for what, count in work.bad.counts.items()})
    for line in findings(work.counts, work.bad):
        tell.line(line)
    empty = next((name for name, part in parts.items() if not part.counts["samples"]), None)
    if empty is not None:
        raise UsageError(nothing_left(empty, recipe.data.held_out, work.bad))
    return write_manifest(
        own,
        StageName.DATA,
        inputs=made_from,
        counts=work.counts,
        facts={
            "vocabulary": vocabulary_of(recipe.target),
            "max_tokens": recipe.data.max_tokens,
            "sources": {name: {source: dict(n) for source, n in part.sources.items()} for name, part in parts.items()},
            "files": {name: file_digest(own / f"{name}.parquet") for name in parts},
            "first_left_out": dict(work.bad.first),
            "revision": recipe.revision,
        },
        began=began,
    )


def _rewritten(work: _Work, read: Read) -> list[Rewritten]:
    """Return the conversations, with new answers where the recipe says so."""
    recipe, config, tell = work.recipe, work.recipe.data.regenerate, work.tell
    if config is None:
        return [Rewritten(one, None, at) for at, one in enumerate(read.conversations)]
    from draftworth.bench.access import access  # noqa: PLC0415 - lazy

    let_in = access(api_key_env=config.api_key_env, headers={}, headers_env={}, ca_file=None, key_name="api_key_env")
    settings = {
        **target_inputs(recipe.target),
        **config.model_dump(mode="json", exclude={*_HOW, "samples"}),
        "arguments": recipe.data.template_args,
        "seed": recipe.data.seed,
    }
    key = settings_key(settings)
    with AnswerLog(work.own / ANSWERS, key) as log:
        for finding in log.findings:
            tell.line(finding)
        if log.known:
            tell.line(f"{len(log.known):,} answers are there already")
        asking = Regeneration(
            Server(config.url, config.model, let_in),
            config,
            log,
            tell,
            encode=work.template.output,
            arguments=recipe.data.template_args,
            seed=recipe.data.seed,
            capture=_capture(work, key) if config.states else None,
        )
        made = asking.run(read.conversations)
    work.counts.update({f"regenerated: {what}": count for what, count in asking.counts.items()})
    work.counts["regenerated"] = len(made)
    return made


def _capture(work: _Work, answers: str) -> Capture:
    """Return what takes the states of the answers, as `[states]` wants them."""
    recipe, states = work.recipe, work.recipe.states
    shape = target_shape(recipe.target, states.layers)
    made = made_from(recipe.target, shape, states.dtype)
    folder = work.own / CAPTURED
    return Capture(folder, shape, states.dtype, made_from=made, answers=answers, disk_gib=states.disk_gib)


def _write(work: _Work, read: Read, rewritten: Sequence[Rewritten]) -> dict[str, _Part]:
    """Write both files, a group's requests that continue each other as one sample."""
    together: dict[int, list[Rewritten]] = {}
    for one in rewritten:
        together.setdefault(read.group[one.origin], []).append(one)
    vocabulary, most = vocabulary_of(work.recipe.target), work.recipe.data.max_tokens
    done = 0
    with ExitStack() as stack:
        files = {name: stack.enter_context(SampleWriter(work.own / f"{name}.parquet")) for name in (TRAIN, HELD_OUT)}
        parts = {name: _Part(writer) for name, writer in files.items()}
        for some in _chunks(list(together.items())):
            for number, conversation, sample in _samples(work, some):
                part = parts[HELD_OUT if number in read.held else TRAIN]
                short = cut(sample, most)
                if int(sample.ids.max()) >= vocabulary:
                    work.bad.add(OUTSIDE, conversation.where)
                elif short is None:
                    work.bad.add(TOO_LONG, conversation.where)
                else:
                    part.counts["cut_samples"] += short is not sample
                    part.counts["cut_loss_tokens"] += sample.learned - short.learned
                    part.add(conversation, short)
            done += sum(len(members) for _, members in some)
            work.tell.count(done, len(rewritten), "conversations made into samples")
    return parts


def _chunks(groups: Sequence[_Group]) -> Iterator[Sequence[_Group]]:
    """Yield groups in order, some at a time: as many as keep the tokenizer's cores busy."""
    some: list[_Group] = []
    for one in groups:
        some.append(one)
        if sum(len(members) for _, members in some) >= _AT_A_TIME:
            yield some
            some = []
    if some:
        yield some


def _samples(work: _Work, groups: Sequence[_Group]) -> Iterator[tuple[int, Conversation, Sample]]:
    """Yield the samples of groups that have something to learn; count the conversations that have none."""
    said = [one for _, members in groups for one in members if one.conversation.messages]
    if said:
        work.template.check()
    rendered = iter(work.template.batch([(one.conversation, one.learned) for one in said]))
    for number, members in groups:
        requests = [(one.conversation, ids) for one in members for ids in one.conversation.ids]
        left_out = [min(len(ids.output), work.template.left_out(ids)) for _, ids in requests]
        made = [(requests[at][0], [sample]) for at, sample in chained([ids for _, ids in requests], left_out)]
        made += [(one.conversation, next(rendered)) for one in members if one.conversation.messages]
        for conversation, samples in made:
            learned = [sample for sample in samples if sample.learned]
            if not learned:
                work.bad.add(NOTHING_LEARNED, conversation.where)
            yield from ((number, conversation, sample) for sample in learned)
