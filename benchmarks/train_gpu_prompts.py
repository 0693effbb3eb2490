"""The prompts of benchmarks/train_gpu.py, and which of them are held out.

The hold-outs are made by what `draftworth train data` itself uses: grouped by their beginnings, a share of each
source's groups by their content and a seed, left out where 13 words in a row are those of a text that must stay unseen.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from benchmarks.train_gpu_ids import Prompts, Ragged
from tokenizers import Tokenizer

from draftworth.training.dedupe import once
from draftworth.training.exclude import Unseen, read_unseen
from draftworth.training.sources.base import USER, Conversation, message_of
from draftworth.training.split import groups, held_out
from draftworth.training.template import ChatTemplate


def select(
    rows: Sequence[tuple[str, str]], target: Path, unseen: Sequence[Path], *, whole: str, share: float, most: int
) -> Prompts:
    """Return the prompts that are answered, split.

    Args:
        rows: source and text of each.
        target: its tokenizer and template make ids.
        unseen: files whose texts must stay unseen.
        whole: a source of which everything is held out.
        share: of every source's groups, held out.
        most: tokens of a prompt, at most.
    """
    conversations = [
        Conversation(
            id=f"{source}/{at}",
            source=source,
            category=source,
            messages=(message_of({"role": USER, "content": text}),),
            where=f"row {at + 1}",
        )
        for at, (source, text) in enumerate(rows)
    ]
    template = ChatTemplate(target, {}, learn_thinking=True)
    group = groups(conversations, template.tail())
    held = held_out(conversations, group, share, seed=0)
    held |= {number for one, number in zip(conversations, group, strict=True) if one.source == whole}
    forbidden = read_unseen(unseen) if unseen else Unseen()
    counts = Counter({"read": len(rows), "groups": len(set(group)), "held_out_groups": len(held)})
    near = {at for at, (_, text) in enumerate(rows) if forbidden.meets(text)}
    counts["left out: 13 words in a row of what must stay unseen"] = len(near)
    kept = [at for at in range(len(rows)) if at not in near]
    chosen, again = once([conversations[at] for at in kept], 1, answers_count=False)
    counts["left out: the same prompt again"] = len(again)
    kept = [kept[at] for at in chosen]
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    texts = [template.render(conversations[at].messages, None, begin=True) for at in kept]
    encoded = [one.ids for one in tokenizer.encode_batch(texts, add_special_tokens=False)]
    counts[f"left out: more than {most} tokens"] = sum(len(one) > most for one in encoded)
    pairs = [(at, ids) for at, ids in zip(kept, encoded, strict=True) if len(ids) <= most]
    names = tuple(dict.fromkeys(rows[at][0] for at, _ in pairs))
    number = {name: at for at, name in enumerate(names)}
    is_held = np.array([group[at] in held for at, _ in pairs], np.bool_)
    counts["train"], counts["held_out"] = int((~is_held).sum()), int(is_held.sum())
    return Prompts(
        Ragged.of([ids for _, ids in pairs]),
        np.array([number[rows[at][0]] for at, _ in pairs], np.int64),
        is_held,
        np.array([at for at, _ in pairs], np.int64),
        names,
        dict(counts),
    )


def read_rows(path: Path, limit: int | None = None) -> list[tuple[str, str]]:
    """Return source and prompt of every line; of a limit, evenly many lines apart."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    if limit is not None and limit < len(rows):
        rows = [rows[at] for at in np.unique(np.linspace(0, len(rows) - 1, limit).astype(int)).tolist()]
    return [(str(row["source"]), str(row["prompt"])) for row in rows]
