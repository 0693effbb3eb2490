"""What works and is slower than it could be, and what an arm's figures will mean.

Read in `config/compilation.py` (`adjust_cudagraph_sizes_for_spec_decode`), `_set_cudagraph_sizes` (`config/vllm.py`,
`config/__init__.py`, `config/scheduler.py`), `v1/worker/gpu_model_runner.py` (uniform decode), `v1/core`
(`use_eagle`), `v1/spec_decode/ngram_proposer.py` and `v1/worker/gpu/spec_decode/ngram/speculator.py`.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from draftworth.engines.vllm.case import Case, Remark, Rule
from draftworth.engines.vllm.planned_flags import truth, whole
from draftworth.engines.vllm.rules_runner import effective_runner

_LARGEST = 512  # tokens of the largest CUDA graph where nobody sets it; 1024 on Blackwell from 0.28.0 on
_SHOWN = 8  # sizes in a sentence


def graph_reach(case: Case) -> Iterator[Remark]:
    """Say from how many drafting requests on a step is larger than the largest CUDA graph."""
    k, seats = case.tokens, case.number("max_num_seqs")
    if not case.speculates or k is None or k < 1 or case.eager or case.engine_v0:
        return
    step = k + 1
    largest = _set_largest(case)
    where = "the largest that is set"
    if largest is None:
        largest, where = _LARGEST, "the largest by default"
        if seats is not None and case.since("0.14.1"):
            largest = min(2 * seats * step, _LARGEST)
        elif seats is not None and case.since("0.10.1.1"):
            largest = min(2 * seats, _LARGEST)
    reach = largest // step
    if seats is not None and seats <= reach:
        return
    yield Remark(
        "graph_reach",
        "note" if seats is None else "costs",
        f"a step verifies {step} tokens a request, so more than {reach} requests at a time go beyond the CUDA graph of "
        f"{largest} tokens, {where}, and run without; a baseline's step has one token a request",
        f"set --max-cudagraph-capture-size to max_num_seqs x {step} in both arms, or measure up to {reach} at a time"
        if case.since("0.11.2")
        else f"measure up to {reach} requests at a time, or set larger CUDA graph sizes in both arms",
    )


def capture_sizes(case: Case) -> Iterator[Remark]:
    """Say how capture sizes that somebody set are rounded (0.11.2 and later, with full CUDA graphs for decoding)."""
    sizes, k = _set_sizes(case), case.tokens
    if not case.speculates or not sizes or k is None or k < 1 or case.eager or not case.since("0.11.2"):
        return
    step, largest = k + 1, max(sizes)
    rounded = sorted({size for size in (math.ceil(size / step) * step for size in sizes) if size <= largest})
    if not rounded and step > largest:
        yield Remark(
            "capture_sizes",
            "refused" if case.since("0.14.1") else "costs",
            f"no CUDA graph size that is set ({largest} at most) holds the {step} tokens a request verifies in a step",
            f"add multiples of {step} to the capture sizes",
        )
    elif rounded != sorted(set(sizes)):
        shown = ", ".join(map(str, rounded[:_SHOWN])) + (", …" if len(rounded) > _SHOWN else "")
        yield Remark(
            "capture_sizes",
            "changed",
            f"with full CUDA graphs, capture sizes become multiples of {step}: {shown or step}",
            f"set multiples of {step}, one for every number of requests you measure",
        )


def full_graphs(case: Case) -> Iterator[Remark]:
    """Say that drafts of different lengths keep steps off full CUDA graphs (V1 runner, 0.11.2 and later)."""
    if case.kind not in ("ngram", "suffix") or case.eager or not case.since("0.11.2"):
        return
    if effective_runner(case) != "V2":
        yield Remark(
            "full_graphs_lost",
            "costs",
            f"{case.method} drafts another number of tokens in every request and step, and the V1 runner uses full "
            "CUDA graphs only where all requests carry the same k + 1",
            "compare with a baseline under cudagraph_mode PIECEWISE as a further arm, to tell its share",
        )


def ngram_on_v2(case: Case) -> Iterator[Remark]:
    """Say how the V2 runner's n-gram drafter differs from V1's (0.32.0 and later)."""
    if case.on_cpu or case.kind not in ("ngram", "ngram_gpu") or not case.since("0.32.0"):
        return
    if effective_runner(case) == "V2":
        yield Remark(
            "ngram_padded",
            "costs",
            "the V2 runner drafts k tokens in every step, filled up with the last token where no n-gram matches, and "
            "takes the latest match; V1 takes the earliest and drafts nothing without one. Acceptance rates of the two "
            "do not compare, and every step verifies k + 1 tokens",
            "try VLLM_USE_V2_MODEL_RUNNER=0 as a further arm, with its own baseline",
        )


def prefix_block(case: Case) -> Iterator[Remark]:
    """Say that EAGLE-like drafters read the last cached block of a prompt again."""
    kinds = {"eagle", "eagle3", "mtp"}
    kinds |= {"dflash"} if case.since("0.20.2") and not case.since("0.33.0") else set()
    kinds |= {"dspark"} if case.since("0.25.0") and not case.since("0.33.0") else set()
    off = "no_enable_prefix_caching" in case.flags or truth(case.setting("enable_prefix_caching")) is False
    if case.kind not in kinds or off or case.engine_v0:
        return
    if truth(case.key("disable_eagle_block_drop")) and case.since("0.32.0"):
        return
    hashed = case.since("0.33.0") and "kv_transfer_config" not in case.flags
    if hashed and not truth(case.key("disable_lookahead_block_hashes")):
        return
    yield Remark(
        "prefix_block_dropped",
        "costs",
        f"{case.method} reads the last block of a prompt that is found in the prefix cache once more in every request",
        "expect fewer prefix cache hits than the baseline; it matters where prompts are short and shared",
    )


def mtp_repeated(case: Case) -> Iterator[Remark]:
    """Say that one MTP layer drafting several tokens is accepted less often (0.11.2 and later)."""
    if case.kind == "mtp" and case.since("0.11.2") and (case.tokens or 0) > 1:
        yield Remark(
            "mtp_repeated",
            "note",
            "more than one drafted token runs most models' single MTP layer several times, and later positions are "
            "accepted less often",
            "try num_speculative_tokens = 1 as an arm too",
        )


def _compilation(case: Case) -> Mapping[str, Any]:
    try:
        document = json.loads(case.flags.get("compilation_config", "{}"))
    except (ValueError, RecursionError):
        return {}
    dotted = {
        name.partition(".")[2].replace("-", "_"): value
        for name, value in case.flags.items()
        if name.startswith("compilation_config.")
    }
    return {**document, **dotted} if isinstance(document, dict) else dotted


def _set_sizes(case: Case) -> list[int]:
    """Return the capture sizes that somebody set, empty where nobody did or they cannot be read."""
    written = case.flags.get("cudagraph_capture_sizes", _compilation(case).get("cudagraph_capture_sizes"))
    if isinstance(written, str):
        written = written.strip("[]").replace(",", " ").split()
    if not isinstance(written, list):
        return []
    sizes = [whole(size) for size in written]
    return [size for size in sizes if size is not None and size > 0] if None not in sizes else []


def _set_largest(case: Case) -> int | None:
    sizes = _set_sizes(case)
    if sizes:
        return max(sizes)
    written = case.flags.get("max_cudagraph_capture_size", _compilation(case).get("max_cudagraph_capture_size"))
    largest = whole(written)
    return largest if largest is not None and largest > 0 else None


RULES: tuple[Rule, ...] = (graph_reach, capture_sizes, full_graphs, ngram_on_v2, prefix_block, mtp_repeated)
