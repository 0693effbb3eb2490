"""What each release of vLLM knows of speculation: keys, methods, choices and flags, from first to last.

Read release by release from the released sources (0.8.5, 0.9.2, 0.10.1.1, 0.10.2, 0.11.2, 0.14.1, 0.20.2, 0.24.0,
0.25.0, 0.28.0, 0.29.0, 0.32.0, 0.33.0): the fields and `Literal` types of `SpeculativeConfig` (`config.py`,
`config/__init__.py`, later `config/speculative.py`) and the flags of `engine/arg_utils.py`. Releases between two of
these were not read; `judged_as` names both neighbours for them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Release = tuple[int, ...]

READ: tuple[Release, ...] = (
    (0, 8, 5),
    (0, 9, 2),
    (0, 10, 1, 1),
    (0, 10, 2),
    (0, 11, 2),
    (0, 14, 1),
    (0, 20, 2),
    (0, 24, 0),
    (0, 25, 0),
    (0, 28, 0),
    (0, 29, 0),
    (0, 32, 0),
    (0, 33, 0),
)
"""The releases whose source was read, oldest first."""

_VERSION = re.compile(r"\s*v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?(?P<rest>.*)", re.DOTALL)
_UNRELEASED = re.compile(r"[.\-_]?(?:dev|a|b|c|rc|alpha|beta|pre)\d*(?![a-z])", re.IGNORECASE)


class Known(NamedTuple):
    """From which of the read releases to which something is known.

    Attributes:
        first: the first read release that has it.
        last: the last one that has it; None where the newest read release still does.
    """

    first: Release
    last: Release | None = None

    def at(self, release: Release) -> bool:
        """Whether this release knows it."""
        return self.first <= release and (self.last is None or release <= self.last)


class Judged(NamedTuple):
    """Which read releases stand for a version.

    Attributes:
        low: the read release at or below it.
        high: the one at or above it; the same as `low` where its minor release was read.
        outside: `older` or `newer` than everything read, or empty.
    """

    low: Release
    high: Release
    outside: str = ""


def text(release: Release) -> str:
    """Return `0.10.1.1`."""
    return ".".join(map(str, release))


def _number(written: str) -> Release:
    return tuple(int(part) for part in written.split("."))


def _known(span: str) -> Known:
    """Read `0.9.2` (and later) or `0.9.2-0.14.1`."""
    first, _, last = span.partition("-")
    return Known(_number(first), _number(last) if last else None)


def _table(spans: Mapping[str, str]) -> dict[str, Known]:
    return {name: _known(span) for span, names in spans.items() for name in names.split()}


KEYS: dict[str, Known] = _table(
    {
        "0.8.5": "num_speculative_tokens model method draft_tensor_parallel_size quantization max_model_len revision"
        " code_revision prompt_lookup_max prompt_lookup_min target_model_config target_parallel_config"
        " draft_model_config draft_parallel_config",
        "0.8.5-0.9.2": "acceptance_method disable_mqa_scorer posterior_threshold posterior_alpha",
        "0.8.5-0.10.2": "disable_logprobs enable_chunked_prefill disable_log_stats",
        "0.8.5-0.14.1": "disable_by_batch_size",
        "0.9.2-0.20.2": "speculative_token_tree",
        "0.11.2": "enforce_eager disable_padded_drafter_batch suffix_decoding_max_tree_depth"
        " suffix_decoding_max_cached_requests suffix_decoding_max_spec_factor suffix_decoding_min_token_prob",
        "0.20.2": "tensor_parallel_size moe_backend use_local_argmax_reduction parallel_drafting draft_load_config"
        " rejection_sample_method synthetic_acceptance_rates synthetic_acceptance_length",
        "0.24.0": "attention_backend num_speculative_tokens_per_batch_size draft_sample_method",
        "0.25.0": "use_heterogeneous_vocab",
        "0.28.0": "kv_cache_dtype enable_adaptive_verification dspark_draft_topk",
        "0.29.0": "index_share_for_mtp_iteration",
        "0.32.0": "disable_eagle_block_drop",
        "0.33.0": "disable_lookahead_block_hashes draft_lm_head_quantization xpress_topc fly_window_size"
        " fly_entropy_threshold fly_entropy_top_k",
    }
)
"""Keys of the speculative configuration."""

METHODS: dict[str, Known] = _table(
    {
        "0.8.5": "ngram eagle draft_model eagle3",  # 0.8.5 takes eagle3 though its Literal does not list it
        "0.8.5-0.8.5": "[ngram]",
        "0.8.5-0.32.0": "medusa mlp_speculator",
        "0.9.2": "deepseek_mtp",
        "0.10.2": "ernie_mtp qwen3_next_mtp",
        "0.11.2": "suffix mtp mimo_mtp glm4_moe_mtp longcat_flash_mtp pangu_ultra_moe_mtp",
        "0.14.1": "exaone_moe_mtp",
        "0.20.2": "ngram_gpu dflash extract_hidden_states glm4_moe_lite_mtp glm_ocr_mtp nemotron_h_mtp exaone4_5_mtp"
        " qwen3_5_mtp step3p5_mtp hy_v3_mtp",
        "0.24.0": "custom_class mimo_v2_mtp minimax_m3_mtp gemma4_mtp",
        "0.25.0": "dspark bailing_hybrid_mtp",
        "0.28.0": "dots3_note_mtp bailing_hybrid_v3_mtp kimi_k3_mtp inkling_mtp",
        "0.29.0": "qwen4_exp_mtp hy_v4_mtp",
        "0.32.0": "glm5_next_mtp",
        "0.33.0": "step5_mtp",
    }
)
"""Values of `method`."""

CHOICES: dict[str, dict[str, Known]] = {
    "rejection_sample_method": _table(
        {
            "0.20.2": "synthetic",
            "0.20.2-0.20.2": "strict probabilistic",
            "0.24.0": "standard",
            "0.25.0": "block",
            "0.33.0": "fly",
        }
    ),
    "draft_sample_method": _table({"0.24.0": "greedy probabilistic"}),
    "draft_lm_head_quantization": _table({"0.33.0": "fp8 nvfp4"}),
    "acceptance_method": _table({"0.8.5-0.9.2": "rejection_sampler typical_acceptance_sampler"}),
}
"""Keys whose values are words of a list."""

_BEFORE_ALL = "0.0.0-0.8.4"
FLAGS: dict[str, Known] = _table(
    {
        # Flat flags: gone in the oldest release that was read.
        _BEFORE_ALL: "speculative_model num_speculative_tokens ngram_prompt_lookup_max ngram_prompt_lookup_min"
        " speculative_draft_tensor_parallel_size speculative_disable_by_batch_size speculative_max_model_len"
        " speculative_model_quantization speculative_disable_mqa_scorer spec_decoding_acceptance_method"
        " typical_acceptance_sampler_posterior_threshold typical_acceptance_sampler_posterior_alpha",
        "0.8.5": "speculative_config",
        "0.10.1.1": "async_scheduling no_async_scheduling",
        "0.24.0": "spec_method spec_model spec_tokens",
        "0.29.0": "per_request_spec_decode_metrics",
    }
)
"""Flags of speculation and of what goes with it, dashes as underscores; others are not judged."""

INSTEAD: dict[str, str] = {
    "speculative_model": "model",
    "num_speculative_tokens": "num_speculative_tokens",
    "ngram_prompt_lookup_max": "prompt_lookup_max",
    "ngram_prompt_lookup_min": "prompt_lookup_min",
    "speculative_draft_tensor_parallel_size": "draft_tensor_parallel_size",
    "speculative_max_model_len": "max_model_len",
    "speculative_model_quantization": "quantization",
}
"""Old flat flags to the key of `--speculative-config` that does the same."""


def judged_as(version: str | None) -> Judged | None:
    """Return which read releases a version is judged as, or None where it cannot be read.

    A patch release is judged as the read one of its minor release, `0.25.0+cu129` as 0.25.0. A build between two
    releases (`0.32.1.dev3+g123`, `0.29.0rc1`) and a minor release that was not read lie between two.
    """
    match = _VERSION.match(version or "")
    if match is None:
        return None
    number = tuple(int(part) for part in match.groups()[:4] if part is not None)
    number += (0,) * (3 - len(number))
    between = bool(_UNRELEASED.match(match["rest"]))
    below = [release for release in READ if release < number or (release == number and not between)]
    above = [release for release in READ if release not in below]
    if not below:
        return Judged(READ[0], READ[0], "older")
    if not above:
        return Judged(READ[-1], READ[-1], "newer" if number > READ[-1] else "")
    if not between:
        for near in (below[-1], above[0]):
            if near[:2] == number[:2]:
                return Judged(near, near)
    return Judged(below[-1], above[0])


def spans(releases: Sequence[Release]) -> str:
    """Return in words for which of the read releases something holds: `0.14.1 and later`, `0.9.2 to 0.14.1`."""
    held = [index for index, release in enumerate(READ) if release in releases]
    runs: list[list[int]] = []
    for index in held:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(_run(run[0], run[-1]) for run in runs)


def _run(first: int, last: int) -> str:
    if last == len(READ) - 1:
        return f"{text(READ[first])} and later"
    return text(READ[first]) if first == last else f"{text(READ[first])} to {text(READ[last])}"
