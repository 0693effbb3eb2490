"""Walk acceptance of a trained head on held-out samples: by k, position, category and conversation, in raw counts.

Beside it how often the recorded token is the target's own first choice: where that is low (another model's text, or
text sampled at a high temperature) a walk on the text says little of what a server would accept at temperature 0.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from draftworth.training.workers.channel import Channel, WorkerRefusedError
from draftworth.training.workers.eagle3 import Draft, target_tensor
from draftworth.training.workers.samples import Sample, read_samples, read_states, walk_sample
from draftworth.training.workers.walking import Part

_PLUS_ONE = frozenset(("gemma", "gemma2", "gemma3", "gemma3_text", "recurrent_gemma", "qwen3_5", "qwen3_5_text"))
"""Models whose last norm multiplies by 1 + weight (speculators 0.9, `models/utils.py`)."""


def work(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Walk every sample.

    Args:
        request: `checkpoint`, `target`, `parquet`, `states`, `k`, `limit`, `device`, `dtype` (the type the head is
            exported in: weights are rounded to it first), `stop_after` (see `walk_sample`; may be absent), `numbered`
            (whether several answers to one conversation are told apart by a number behind `#`; may be absent).
        channel: takes progress.

    Returns:
        `total` and `categories`: counts by k; `each`: those of every conversation, in the order of its first sample,
        without its name; `context` and `contexts`: mean tokens half-way an answer, None where there is none.
    """
    device = "cuda" if request["device"] != "cpu" and torch.cuda.is_available() else "cpu"
    if request["device"] == "cuda" and device == "cpu":
        raise WorkerRefusedError('[fit] device = "cuda": torch finds no GPU here')
    torch.backends.cuda.matmul.allow_tf32 = False
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": None}[request["dtype"]]
    draft = Draft.load(Path(request["checkpoint"]), Path(request["target"]), device, dtype)
    teacher = Teacher(Path(request["target"]), device)
    ks = tuple(sorted(int(one) for one in request["k"]))
    samples = read_samples(Path(request["parquet"]), limit=request["limit"])
    names = conversations(Path(request["parquet"]), numbered=bool(request.get("numbered")))
    total, parts, each = Part(ks), dict[str, Part](), dict[tuple[str, str], Part]()
    agreed = learned = 0
    for done, sample in enumerate(samples, start=1):
        states = read_states(Path(request["states"]), sample)
        found = walk_sample(draft, sample, states, ks, request.get("stop_after"))
        category = sample.category or sample.source
        for part in (
            total,
            parts.setdefault(category, Part(ks)),
            each.setdefault((category, names[sample.row]), Part(ks)),
        ):
            part.add(sample.mask, found)
        own = teacher.agrees(sample, states[:, -1])
        agreed, learned = agreed + own[0], learned + own[1]
        channel.count(done, len(samples), f"{len(sample.ids)} tokens")
    return {
        "samples": len(samples),
        "device": device,
        "loss_tokens": learned,
        "first_choices": agreed,
        "total": total.counts(),
        "categories": {name: part.counts() for name, part in sorted(parts.items())},
        "each": [{"category": category, "walks": part.counts()} for (category, _), part in each.items()],
        "context": total.half_way,
        "contexts": {name: part.half_way for name, part in sorted(parts.items()) if part.half_way is not None},
    }


def conversations(path: Path, *, numbered: bool) -> dict[int, str]:
    """Return each sample's conversation by its row; several answers to one are one conversation where `numbered`."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import

    table = pq.read_table(path, columns=["sample", "conversation"]).to_pydict()
    names = (str(one).rpartition("#")[0] or str(one) if numbered else str(one) for one in table["conversation"])
    return dict(zip(map(int, table["sample"]), names, strict=True))


class Teacher:
    """The target's last norm and output layer."""

    def __init__(self, target: Path, device: str) -> None:
        config = json.loads((target / "config.json").read_text("utf-8"))
        text = config.get("text_config") or config
        self._device = device
        self._eps = float(text.get("rms_norm_eps") or 1e-6)
        gain = _norm_weight(target).float().to(device)
        self._gain = gain + 1 if str(text.get("model_type")) in _PLUS_ONE else gain
        try:
            head = target_tensor(target, "lm_head.weight")
        except WorkerRefusedError:
            head = target_tensor(target, "embed_tokens.weight")
        self._head = head.float().to(device)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def agrees(self, sample: Sample, states: torch.Tensor) -> tuple[int, int]:
        """Return how many learned tokens are the target's first choice, and how many learned tokens there are.

        Args:
            sample: the sample.
            states: in front of the last norm, [T, hidden].
        """
        where = torch.from_numpy(sample.mask[1:]).nonzero()[:, 0]
        x = states[where].float().to(self._device)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self._eps) * self._gain
        wanted = torch.from_numpy(sample.ids[1:])[where].to(self._device)
        agreed = sum(
            int(((part @ self._head.T).argmax(-1) == ids).sum())
            for part, ids in zip(x.split(256), wanted.split(256), strict=True)
        )
        return agreed, len(where)


def _norm_weight(target: Path) -> torch.Tensor:
    for name in ("model.norm.weight", "norm.weight", "norm_f.weight", "final_layernorm.weight"):
        try:
            return target_tensor(target, name)
        except WorkerRefusedError:
            continue
    raise WorkerRefusedError(f"{target}: the weight of its last norm was not found")
