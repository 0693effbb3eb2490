"""Which release of SGLang knows which setting and algorithm of speculation, in the releases that were read.

Read in `server_args.py` and `arg_groups/**` of `READ`. A release between two that were read and disagree was not
checked, and is told so. argparse refuses a flag that a release does not know.
"""

from typing import NamedTuple

from draftworth.engines.sglang.releases import Release, text

READ: tuple[Release, ...] = (
    (0, 4, 6),
    (0, 5, 3),
    (0, 5, 4),
    (0, 5, 5),
    (0, 5, 6),
    (0, 5, 9),
    (0, 5, 10),
    (0, 5, 11),
    (0, 5, 12),
    (0, 5, 13),
    (0, 5, 14),
    (0, 5, 16),
    (0, 5, 17),
    (0, 5, 18),
    (0, 5, 19),
    (0, 5, 23),
)
"""The releases read, their `.post` releases not told apart."""


class Span(NamedTuple):
    """From which release to which something holds; None for no end seen."""

    first: Release
    last: Release | None = None

    def holds(self, release: Release | None) -> bool:
        """Tell whether it holds in a release; an unknown one counts as every release."""
        return release is None or (self.first <= release and (self.last is None or release <= self.last))

    @property
    def words(self) -> str:
        """The span for a person."""
        if self.last is None:
            return f"{text(self.first)} and later"
        return text(self.first) if self.first == self.last else f"{text(self.first)} to {text(self.last)}"


ALL = Span(READ[0])

_046, _053, _054, _055 = READ[0], READ[1], READ[2], READ[3]
_059, _0510, _0511, _0512 = READ[5], READ[6], READ[7], READ[8]
_0514, _0516, _0518, _0519, _0523 = READ[10], READ[11], READ[13], READ[14], READ[15]

ALGORITHMS: dict[str, Span] = {
    "EAGLE": Span(_046),
    "EAGLE3": Span(_046),
    "NEXTN": Span(_046),
    "STANDALONE": Span(_053),
    "NGRAM": Span(_053),
    "DFLASH": Span(_0511),
    "FROZEN_KV_MTP": Span(_0512),
    "DSPARK": Span(_0516),
    "UNO": Span(_0523),
}

SETTINGS: dict[str, Span] = {
    **dict.fromkeys(
        (
            "algorithm",
            "draft_model_path",
            "num_steps",
            "eagle_topk",
            "num_draft_tokens",
            "accept_threshold_single",
            "accept_threshold_acc",
            "token_map",
        ),
        Span(_046),
    ),
    **dict.fromkeys(
        (
            "attention_mode",
            "draft_model",
            "draft_model_revision",
            "ngram_capacity",
            "ngram_match_type",
            "ngram_max_bfs_breadth",
            "ngram_min_bfs_breadth",
        ),
        Span(_053),
    ),
    **dict.fromkeys(
        ("ngram_branch_length", "ngram_max_match_window_size", "ngram_min_match_window_size"), Span(_053, _059)
    ),
    "draft_load_format": Span(_054),
    "moe_runner_backend": Span(_055),
    "draft_attention_backend": Span(_059),
    "draft_model_quantization": Span(_059),
    "ngram_max_trie_depth": Span(_0510),
    **dict.fromkeys(
        (
            "adaptive",
            "adaptive_config",
            "dflash_block_size",
            "ngram_external_corpus_path",
            "ngram_external_corpus_max_tokens",
            "ngram_external_sam_budget",
        ),
        Span(_0511),
    ),
    "dflash_draft_window_size": Span(_0511, _0519),
    "skip_dp_mlp_sync": Span(_0511, _0519),
    "draft_window_size": Span(_0512),
    "use_rejection_sampling": Span(_0514),
    **dict.fromkeys(
        (
            "dspark_block_size",
            "dspark_align_verify_tokens_to_graph_tier",
            "dspark_confidence_sts_path",
            "dspark_sps_table_path",
        ),
        Span(_0516),
    ),
    "draft_kv_cache_dtype": Span(_0518),
    "dsa_topk_backend": Span(_0519),
    **dict.fromkeys(
        ("boundary_reduction", "domino_candidate_pool_size", "draft_sink_size", "use_block_verification"), Span(_0523)
    ),
}

INSTEAD = {
    "ngram_branch_length": "ngram_max_trie_depth",
    "ngram_max_match_window_size": "ngram_max_trie_depth",
    "dflash_draft_window_size": "draft_window_size",
    "ngram_max_trie_depth": "ngram_branch_length",
    "draft_window_size": "dflash_draft_window_size",
}
"""What a setting is called in the releases that do not know it."""


def unsure(span: Span, release: Release) -> bool:
    """Tell whether a release lies between two that were read of which one knows a thing and the other does not."""
    before = [one for one in READ if one < span.first]
    if before and before[-1] < release < span.first:
        return True
    after = [one for one in READ if span.last is not None and one > span.last]
    return bool(span.last is not None and after and span.last < release < after[0])
