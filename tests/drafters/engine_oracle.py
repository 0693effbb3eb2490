"""The released engines' own n-gram drafters, run for many contexts at once. Run with the engine's Python.

`python engine_oracle.py IN OUT`: IN is an .npz with `which` (0 vLLM V1, 1 vLLM V2, 2 transformers), `tokens`,
`offsets`, `ks`, `mins`, `maxs`, `bounds` (max_model_len or max_length) and `ends` (a token id, -1 for none); OUT gets
`drafts` and `offsets`. The drafters' functions are taken from the installed files unchanged: vLLM's out of their
syntax trees, since importing vLLM takes longer than all of this, and its Triton kernels run on numpy.
"""

import ast
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

V1, V2, HF = range(3)


def functions(package: str, file: str, names: list[str], scope: dict[str, Any]) -> list[Any]:
    """Return functions of an installed file; nothing else of the file is run."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / file
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kept = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    assert len(kept) == len(names), f"{path} lacks one of {names}"
    code = compile(ast.Module([*kept], []), str(path), "exec", dont_inherit=True)
    exec(code, scope)
    return [scope[name] for name in names]


class Tensor(np.ndarray[Any, Any]):
    """A numpy array with Triton's `to`."""

    def to(self, dtype: Any) -> "Tensor":
        return self.astype(dtype).view(Tensor)


def tensor(value: Any, dtype: Any = np.int64) -> Tensor:
    return np.asarray(value, dtype=dtype).view(Tensor)


class Pointer:
    """A flat array and where in it one points."""

    def __init__(self, memory: NDArray[Any], at: Any = 0) -> None:
        self.memory, self.at = memory, np.asarray(at)

    def __add__(self, other: Any) -> "Pointer":
        return Pointer(self.memory, self.at + np.asarray(other))


class Language:
    """What the kernels use of triton.language."""

    int32, int64, constexpr = np.int32, np.int64, None

    def __init__(self) -> None:
        self.program = (0, 0)

    def program_id(self, axis: int) -> Tensor:
        return tensor(self.program[axis])

    def load(self, pointer: Pointer, mask: Any = True, other: Any = 0) -> Tensor:  # noqa: FBT002 - Triton's signature
        at, mask = np.broadcast_arrays(pointer.at, np.asarray(mask))
        assert ((at >= 0) & (at < pointer.memory.size))[mask].all(), "a load outside of the memory"
        return tensor(np.where(mask, pointer.memory[np.where(mask, at, 0)], other), pointer.memory.dtype)

    def store(self, pointer: Pointer, value: Any, mask: Any = True) -> None:  # noqa: FBT002 - Triton's signature
        at, mask, value = np.broadcast_arrays(pointer.at, np.asarray(mask), np.asarray(value))
        pointer.memory[at[mask]] = value[mask]

    def arange(self, start: int, end: int) -> Tensor:
        return tensor(np.arange(start, end), np.int32)

    def zeros(self, shape: Any, dtype: Any) -> Tensor:
        return tensor(np.zeros(shape), dtype)

    def zeros_like(self, like: Any) -> Tensor:
        return tensor(np.zeros_like(like))

    def cast(self, value: Any, dtype: Any) -> Tensor:
        return tensor(value, dtype)

    def where(self, condition: Any, one: Any, other: Any) -> Tensor:
        return tensor(np.where(condition, one, other))

    def sum(self, value: Any) -> Tensor:
        return tensor(np.sum(value))

    def max(self, value: Any, axis: int) -> Tensor:
        return tensor(np.max(value, axis=axis))

    def maximum(self, one: Any, other: Any) -> Tensor:
        return tensor(np.maximum(one, other))

    def minimum(self, one: Any, other: Any) -> Tensor:
        return tensor(np.minimum(one, other))

    def static_range(self, start: int, end: int) -> range:
        return range(start, end)


def power(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()


class V2Drafter:
    """Launches the two kernels as NgramGPUSpeculator does, for a batch of one."""

    def __init__(self) -> None:
        self.tl = Language()
        scope = {"tl": self.tl, "triton": SimpleNamespace(jit=lambda function: function)}
        names = ["_ngram_scan_kernel", "_ngram_finalize_kernel"]
        file = "v1/worker/gpu/spec_decode/ngram/speculator.py"
        self.scan, self.finalize = functions("vllm", file, names, scope)

    def __call__(self, context: NDArray[np.int32], k: int, low: int, high: int, bound: int) -> NDArray[np.int32]:
        block = 256 if bound >= 1024 else 128 if bound >= 256 else 64 if bound >= 64 else max(16, power(bound))
        blocks = -(-bound // block)
        row = np.zeros(bound, dtype=np.int32)
        row[: len(context)] = context
        ids, at, sampled = Pointer(row), Pointer(np.zeros(1, np.int64)), Pointer(np.ones(1, np.int32))
        total, last = Pointer(np.array([len(context)], np.int32)), Pointer(np.array([context[-1]], np.int64))
        scratch, drafts = Pointer(np.zeros(blocks, np.int64)), Pointer(np.zeros(k, np.int64))
        for number in range(blocks):
            self.tl.program = (0, number)
            # The scalar launch arguments are pointers' strides and bounds, as `propose` passes them.
            self.scan(ids, bound, at, total, sampled, scratch, blocks, bound, low, high, power(high), block)
        self.tl.program = (0, 0)
        self.finalize(
            ids, bound, at, total, sampled, last, scratch, blocks, drafts, bound, blocks, k, power(k), power(blocks)
        )
        return drafts.memory.astype(np.int32)


class V1Drafter:
    """The function that NgramProposer calls for each request."""

    def __init__(self) -> None:
        from numba import jit  # noqa: PLC0415 - only where it is asked for

        name = "_find_longest_matched_ngram_and_propose_tokens"
        (self.find,) = functions("vllm", "v1/spec_decode/ngram_proposer.py", [name], {"np": np, "jit": jit})

    def __call__(self, context: NDArray[np.int32], k: int, low: int, high: int, bound: int) -> NDArray[np.int32]:
        if len(context) >= bound:  # `propose` skips such a request
            return np.empty(0, dtype=np.int32)
        found: NDArray[np.int32] = self.find(context, low, high, bound, k)
        return found


class HFDrafter:
    """PromptLookupCandidateGenerator."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415 - only where it is asked for
        from transformers.generation import candidate_generator  # noqa: PLC0415 - same

        self.torch, self.kind = torch, candidate_generator.PromptLookupCandidateGenerator

    def __call__(self, context: NDArray[np.int32], k: int, high: int, bound: int, end: int) -> NDArray[np.int32]:
        eos = None if end < 0 else self.torch.tensor([end])
        generator = self.kind(eos_token_id=eos, num_output_tokens=k, max_matching_ngram_size=high, max_length=bound)
        ids = self.torch.from_numpy(context.astype(np.int64))[None]
        found: NDArray[np.int32] = generator.get_candidates(ids)[0][0, len(context) :].numpy().astype(np.int32)
        return found


def main() -> None:
    # Each look-up in the file reads the array anew: all are read once.
    cases = dict(np.load(sys.argv[1]))
    offsets = cases["offsets"]
    kinds: dict[int, Any] = {V1: V1Drafter, V2: V2Drafter, HF: HFDrafter}
    made = {which: kinds[which]() for which in np.unique(cases["which"]).tolist()}
    drafts: list[NDArray[np.int32]] = []
    for number, which in enumerate(cases["which"].tolist()):
        context = cases["tokens"][offsets[number] : offsets[number + 1]]
        k, low, high, bound, end = (int(cases[name][number]) for name in ("ks", "mins", "maxs", "bounds", "ends"))
        if which == HF:
            drafts.append(made[which](context, k, high, bound, end))
        else:
            drafts.append(made[which](context, k, low, high, bound))
    np.savez(sys.argv[2], drafts=np.concatenate(drafts), offsets=np.cumsum([0, *map(len, drafts)]))


if __name__ == "__main__":
    main()
