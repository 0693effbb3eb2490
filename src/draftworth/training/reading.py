"""Conversations out of all sources: read, split by conversation before anything else, then thinned out with reasons."""

from collections import Counter
from dataclasses import dataclass, field, replace

from draftworth.traces.base import BadRows
from draftworth.traces.columns import BadRow
from draftworth.training.base import Tell
from draftworth.training.dedupe import once
from draftworth.training.exclude import Unseen, read_unseen
from draftworth.training.recipe import DataConfig, Recipe
from draftworth.training.recipe_file import source_name
from draftworth.training.sources import source_of
from draftworth.training.sources.base import ASSISTANT, Conversation
from draftworth.training.split import groups, held_out
from draftworth.training.template import ChatTemplate

NO_ANSWER = "no answer of the assistant"
UNSEEN = "shares 13 words in a row with what must stay unseen"
_EVERY = 200


@dataclass(slots=True)
class Read:
    """What the sources hold.

    Attributes:
        conversations: those that are used.
        group: of each.
        held: the groups that are held out.
        counts: of everything that was read.
    """

    conversations: list[Conversation]
    group: list[int]
    held: set[int]
    counts: Counter[str] = field(default_factory=Counter)


def read_conversations(recipe: Recipe, template: ChatTemplate, bad: BadRows, tell: Tell) -> Read:
    """Return the conversations of all sources, split and thinned out.

    Args:
        recipe: whose sources.
        template: the target's.
        bad: takes what is left out.
        tell: takes progress.

    Raises:
        UsageError: a source cannot be read.
    """
    found: list[Conversation] = []
    names: Counter[str] = Counter()
    for config in recipe.data.sources:
        source, name = source_of(config), source_name(config)
        tell.now(f"reading {name}")
        count = 0
        for where, one in source.read(config, name, recipe.target):
            if isinstance(one, BadRow):
                bad.add(str(one), where)
                continue
            names[one.id] += 1
            # Two rows of one name are two conversations: ids of public collections repeat.
            found.append(one if names[one.id] == 1 else replace(one, id=f"{one.id}~{names[one.id]}"))
            count += 1
            if count % _EVERY == 0:
                tell.now(f"reading {name}; {count:,} conversations")
            if count == config.limit:
                break
    group = groups(found, template.tail())
    held = held_out(found, group, recipe.data.held_out, recipe.data.seed)
    counts = Counter({"conversations": len(found), "groups": len(set(group)), "held_out_groups": len(held)})
    unseen = read_unseen(recipe.data.exclude) if recipe.data.exclude else None
    if unseen is not None:
        counts["texts_to_stay_unseen"] = unseen.texts
    kept = _kept(recipe.data, found, template, unseen, bad)
    return Read([found[at] for at in kept], [group[at] for at in kept], held, counts)


def _kept(
    data: DataConfig, found: list[Conversation], template: ChatTemplate, unseen: Unseen | None, bad: BadRows
) -> list[int]:
    """Return what has an answer, need not stay unseen, and is not repeated."""
    anew = data.regenerate is not None
    kept: list[int] = []
    for at, one in enumerate(found):
        if not one.answered and not anew:
            bad.add(NO_ANSWER, one.where)
        elif unseen is not None and any(unseen.meets(text) for text in _prompts(one, template)):
            bad.add(UNSEEN, one.where)
        else:
            kept.append(at)
    chosen, left_out = once([found[at] for at in kept], data.per_prompt, answers_count=not anew)
    for at, reason in left_out:
        bad.add(reason, found[kept[at]].where)
    return [kept[at] for at in chosen]


def _prompts(one: Conversation, template: ChatTemplate) -> list[str]:
    """Return what was asked in a conversation, as texts."""
    if one.messages:
        return [str(message["content"]) for message in one.messages if message["role"] != ASSISTANT]
    return [template.decode(ids.prompt) for ids in one.ids]
