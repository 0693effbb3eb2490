"""Whether prompts look like no traffic at all: random tokens, or the same text over and over.

Both decide verdicts: random tokens leave a drafter nothing to predict, and repeated filler leaves it nothing to miss.
Nothing here knows a language or a tokenizer; it counts how often a text comes back to its own words.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from draftworth.bench.base import Prompt

# Two words drawn from one text are the same with this probability, or it is no language. Measured: the 170 questions
# of Spec-Bench and 2272 of P3, GSM8K, HumanEval and self-instruct that have 128 words or more lie between 0.0051 and
# 0.044; SmolLM2's 49152 tokens drawn uniformly, or in sequence as vLLM's random data set has them, between 0 and
# 0.00013. The bound is ten times below the lowest text; 150 words of Turkish, Finnish and Russian give 0.0044 to 0.010.
_WORDS_COME_BACK = 0.0005
_FEWEST_WORD_PAIRS = 128 * 127 // 2
# Scripts without spaces are counted by character: Chinese, Japanese, Korean and Thai samples give 0.009 to 0.035 (the
# commonest Chinese character alone is 4 % of a text, 0.0016); drawn uniformly from the 20902 of the first block they
# give 0.00005.
_CHARACTERS_COME_BACK = 0.001
_FEWEST_CHARACTER_PAIRS = 256 * 255 // 2
# Token ids: uniform draws from R ids repeat with probability 1/R. Of Spec-Bench under SmolLM2's tokenizer the lowest
# is 0.0039, 190 times as much. Twice the expectation and three pairs are behind three standard deviations of a
# uniform draw at 128 ids and beyond.
_TIMES_UNIFORM = 2.0
_PAIRS_BY_CHANCE = 3
# Prompts with less than this say nothing: one sentence may well have no word twice.
_SHORTEST_WORDS = 16
_SHORTEST_CHARACTERS = 64

# The share of a prompt's words that stand in a run of eight which was there before. Highest of the texts above: 0.48
# (retrieved passages that contain each other). A text twice gives 0.5 and may be a draft with its revision; three
# times gives 0.67.
_RUN = 8
_ID_RUN = 16
_REPEATED = 0.6
_SHORTEST_REPEATED = 32
# Spec-Bench and the 17521 prompts above have no prompt twice.
_SAME_PROMPT = 0.2
_FILLER = frozenset(
    "lorem ipsum dolor sit amet consectetur adipiscing adipisicing elit sed eiusmod tempor incididunt ut labore et "  # noqa: SIM905 - a word a line would hide what it is
    "dolore magna aliqua enim minim veniam quis nostrud exercitation ullamco laboris nisi aliquip ex ea commodo "
    "consequat duis aute irure in reprehenderit voluptate velit esse cillum eu fugiat nulla pariatur".split()
)
# Of the texts above at most 0.16 of a prompt's words are in that list (`in`, `et`, `sit`, `sed`, `ex`).
_FILLER_SHARE = 0.4

# From which share of the prompts the whole workload is said to be so: a tenth moves a mean, a stray prompt does not.
_SHARE = 0.1
_MOST_PROMPTS = 1000
_MOST_CHARACTERS = 20_000
_MOST_IDS = 4096

# Scripts that put no space between words, and Hangul, whose words carry their particles: one unit a character.
_UNSPACED = "\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff"
_UNITS = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")


@dataclass(frozen=True, slots=True)
class Shape:
    """What prompts look like.

    Attributes:
        looks_random: a tenth of the prompts or more look like random tokens.
        repeats: a tenth or more are repeated filler, or a fifth of them are sent before under another id.
        evidence: why, or what was looked at, in one line.
        random_ids: the prompts that look random, as far as each or its category was long enough to be judged.
        repeating_ids: the prompts that are repeated filler.
    """

    looks_random: bool
    repeats: bool
    evidence: str
    random_ids: tuple[str, ...] = ()
    repeating_ids: tuple[str, ...] = ()


@dataclass(slots=True)
class _Pairs:
    """How many pairs of units there are within prompts, and how many are the same: texts first, then token ids."""

    words: int = 0
    same_words: int = 0
    characters: int = 0
    same_characters: int = 0
    ids: int = 0
    same_ids: int = 0

    def add(self, other: "_Pairs") -> None:
        self.words += other.words
        self.same_words += other.same_words
        self.characters += other.characters
        self.same_characters += other.same_characters
        self.ids += other.ids
        self.same_ids += other.same_ids

    def random(self, vocabulary: int) -> bool | None:
        """Whether they look drawn at random; None where there are too few to tell."""
        if self.ids >= _FEWEST_WORD_PAIRS:
            return self.same_ids <= _TIMES_UNIFORM * self.ids / vocabulary + _PAIRS_BY_CHANCE
        if self.words >= _FEWEST_WORD_PAIRS:
            return self.same_words < _WORDS_COME_BACK * self.words
        if self.characters >= _FEWEST_CHARACTER_PAIRS:
            return self.same_characters < _CHARACTERS_COME_BACK * self.characters
        return None


def shape(prompts: Sequence[Prompt]) -> Shape:
    """Say whether prompts look like random tokens or like one text repeated.

    At most 1000 prompts, evenly spaced, and 20,000 characters or 4096 token ids of each are looked at.

    Args:
        prompts: in any order; their categories are judged together where each prompt is short.
    """
    looked_at = prompts if len(prompts) <= _MOST_PROMPTS else prompts[:: -(-len(prompts) // _MOST_PROMPTS)]
    if not looked_at:
        return Shape(looks_random=False, repeats=False, evidence="no prompts")
    random, judged, pairs = _random(looked_at)
    repeating = tuple(prompt.id for prompt in looked_at if _is_filler(prompt))
    same = len(prompts) - len({hash(_identity(prompt)) for prompt in prompts})
    looks_random = len(random) >= _SHARE * len(looked_at)
    filler = len(repeating) >= _SHARE * len(looked_at)
    sent_again = same >= _SAME_PROMPT * len(prompts)
    found = []
    if looks_random:
        found.append(f"{len(random)} of {len(looked_at)} prompts look like random tokens: {_rates(pairs)}")
    if filler:
        found.append(f"{len(repeating)} of {len(looked_at)} prompts repeat the same text over and over")
    if sent_again:
        found.append(f"{same} of {len(prompts)} prompts are the same as one before")
    if not found:
        long = f"{judged} of {len(looked_at)} prompts were long enough to tell whether they are random"
        found.append(f"{long}; {len(random)} look so, {len(repeating)} repeat themselves, {same} are sent twice")
    return Shape(
        looks_random=looks_random,
        repeats=filler or sent_again,
        evidence="; ".join(found),
        random_ids=random,
        repeating_ids=repeating,
    )


def _random(prompts: Sequence[Prompt]) -> tuple[tuple[str, ...], int, _Pairs]:
    """Return the ids that look random, how many could be judged, and the pairs of those that look random."""
    counted = [(prompt, _pairs(prompt)) for prompt in prompts]
    vocabulary = 1 + max((max(prompt.token_ids) for prompt in prompts if prompt.token_ids), default=0)
    short: dict[str, _Pairs] = {}
    verdicts: dict[str, bool] = {}
    for prompt, pairs in counted:
        verdict = pairs.random(vocabulary)
        if verdict is None:
            short.setdefault(prompt.category, _Pairs()).add(pairs)
        else:
            verdicts[prompt.id] = verdict
    for prompt, _ in counted:
        if prompt.id not in verdicts:
            together = short[prompt.category].random(vocabulary)
            if together is not None:
                verdicts[prompt.id] = together
    total = _Pairs()
    for prompt, pairs in counted:
        if verdicts.get(prompt.id):
            total.add(pairs)
    return tuple(prompt.id for prompt, _ in counted if verdicts.get(prompt.id)), len(verdicts), total


def _pairs(prompt: Prompt) -> _Pairs:
    if prompt.token_ids is not None:
        ids = prompt.token_ids[:_MOST_IDS]
        return _Pairs(ids=_all_pairs(len(ids)), same_ids=_same_pairs(ids))
    units = _units(prompt)
    # Numbers are left out: a table of measurements has no number twice and is no random text.
    words = [unit for unit in units if not unit.isdigit() and not _IS_UNSPACED.match(unit)]
    characters = [unit for unit in units if _IS_UNSPACED.match(unit)]
    result = _Pairs()
    if len(words) >= _SHORTEST_WORDS:
        result.words, result.same_words = _all_pairs(len(words)), _same_pairs(words)
    if len(characters) >= _SHORTEST_CHARACTERS:
        result.characters, result.same_characters = _all_pairs(len(characters)), _same_pairs(characters)
    return result


def _is_filler(prompt: Prompt) -> bool:
    units: Sequence[Hashable]
    if prompt.token_ids is not None:
        units, run = prompt.token_ids[:_MOST_IDS], _ID_RUN
    else:
        units, run = _units(prompt), _RUN
    if len(units) < _SHORTEST_REPEATED:
        return False
    if sum(unit in _FILLER for unit in units) >= _FILLER_SHARE * len(units) and {"lorem", "ipsum"} & set(units):
        return True
    seen: set[int] = set()
    covered = 0
    covered_to = 0
    for i in range(len(units) - run + 1):
        key = hash(tuple(units[i : i + run]))
        if key in seen:
            covered += i + run - max(i, covered_to)
            covered_to = i + run
        seen.add(key)
    return covered >= _REPEATED * len(units)


def _texts(prompt: Prompt) -> Iterator[str]:
    for message in prompt.messages:
        content = message.get("content")
        if isinstance(content, str):
            yield content
    for turn in prompt.turns:
        yield turn.content


def _units(prompt: Prompt) -> list[str]:
    return _UNITS.findall("\n".join(_texts(prompt))[:_MOST_CHARACTERS].lower())


def _identity(prompt: Prompt) -> Hashable:
    return (" ".join("\n".join(_texts(prompt)).split()), prompt.token_ids)


def _all_pairs(count: int) -> int:
    return count * (count - 1) // 2


def _same_pairs(units: Sequence[Hashable]) -> int:
    return sum(_all_pairs(count) for count in Counter(units).values())


def _rates(pairs: _Pairs) -> str:
    if pairs.ids:
        return f"{pairs.same_ids} of {pairs.ids} pairs of token ids are the same, as in a uniform draw"
    if pairs.words:
        return (
            f"two words of one prompt are the same in {pairs.same_words / pairs.words:.3%} of all pairs, "
            "in written text in 0.4 % and more"
        )
    return (
        f"two characters of one prompt are the same in {pairs.same_characters / max(1, pairs.characters):.3%} of pairs"
    )
