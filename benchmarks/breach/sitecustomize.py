"""A rejection sampler that is wrong on purpose: on the PYTHONPATH of a vLLM on CPU, with BREACH_RATE in its environ.

vLLM 0.32's synthetic acceptance (`rejection_sample_method = "synthetic"`) accepts drafts by a rate whatever the target
says; its kernels for CPUs refuse that. These do the same, unannounced: no option and no log line tells of it, as a
faulty sampler would not. Read against `vllm/v1/sample/rejection_sampler.py`; the kernels are looked up by name in
`vllm/utils/cpu_triton_utils.py` when the platform registers them.

BREACH_MENDED = 1 mends what that release gets wrong by itself: `_expand_kernel_impl` writes temperatures into a copy of
another type, so that drafts are verified at whatever the memory held (`benchmarks/breach_cpu.py`).
"""

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULE = "vllm.utils.cpu_triton_utils"
RATE = float(os.environ.get("BREACH_RATE") or 0.0)
MENDED = os.environ.get("BREACH_MENDED") == "1"


def _accept(kernel: Sequence[Any], instead: Any, greedy: Any, uniform: Any, *, wants_greedy: bool) -> None:
    """Write each request's tokens: drafts accepted by the rate, then what stands instead, or the bonus token.

    Args:
        kernel: output [requests, k + 1], ends of the requests' drafts, drafts, bonus tokens [requests, 1].
        instead: for each draft, the token that is written where it is rejected.
        greedy: whether each request is greedy; None: all are.
        uniform: a number in [0, 1) for each draft.
        wants_greedy: which requests are written.
    """
    out, ends, drafts, bonus = kernel
    first = 0
    for request, end in enumerate(ends.tolist()):
        if (greedy is None or bool(greedy[request])) is wants_greedy:
            for at in range(first, end):
                accepted = int(drafts[at]) >= 0 and float(uniform[at]) < RATE
                out[request, at - first] = drafts[at] if accepted else instead[at]
                if not accepted:
                    break
            else:
                out[request, end - first] = bonus[request, 0]
        first = end


def _greedy(*given: Any) -> None:
    import torch  # noqa: PLC0415 - the engine's

    out, ends, drafts, argmax, bonus, greedy = given[:6]
    _accept((out, ends, drafts, bonus), argmax, greedy, torch.rand(len(drafts)), wants_greedy=True)


def _random(*given: Any) -> None:
    out, ends, drafts, _, _, bonus, recovered, uniform, greedy = given[:9]
    _accept((out, ends, drafts, bonus), recovered, greedy, uniform, wants_greedy=False)


def _expand(*given: Any) -> None:
    """Write each request's value for each of its tokens: output [tokens], values and ends of the requests, from, to."""
    out, values, ends, old, new = given[:5]
    counts = ends.diff(prepend=ends.new_zeros(1)).long()
    out.copy_(values.masked_fill(values == old, new).repeat_interleave(counts).to(out.dtype))


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the module be made as it is, and then puts the kernels into it."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        del path, target
        if fullname != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def broken(module: ModuleType) -> None:
            run(module)
            if MENDED:
                vars(module).update(_expand_kernel_impl=_expand)
            if RATE > 0:
                vars(module).update(
                    _rejection_greedy_sample_kernel_impl=_greedy, _rejection_random_sample_kernel_impl=_random
                )

        vars(spec.loader)["exec_module"] = broken
        return spec


if RATE > 0 or MENDED:
    sys.meta_path.insert(0, _Finder())
