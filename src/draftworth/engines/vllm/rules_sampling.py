"""Sampling parameters that do not work beside speculation, release by release.

Read in `v1/spec_decode/utils.py` (`is_spec_decode_supported`, `is_spec_decode_unsupported`: 0.8.5 to 0.11.2),
`v1/sample/rejection_sampler.py`, `v1/sample/logits_processor` (`build_logitsprocs`), `v1/engine/processor.py`
(`_validate_supported_sampling_params`) and `sampling_params.py` (`_validate_spec_decode`). Greedy and random sampling,
top_k and top_p work in all of them, and so do structured outputs from 0.9.2 on.

Each parameter is a remark of its own: what is done with it changed in other releases than for its neighbours.
"""

from collections.abc import Iterator

from draftworth.engines.vllm.case import Case, Remark, Rule
from draftworth.engines.vllm.planned_flags import truth

_PENALTIES = frozenset({"frequency_penalty", "presence_penalty", "repetition_penalty"})
_STRUCTURED = frozenset(
    {
        "structured_outputs",
        "response_format",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "guided_decoding",
    }
)


def refused_requests(case: Case) -> Iterator[Remark]:
    """Name parameters that make vLLM answer a request with an error."""
    if not case.speculates:
        return
    refused: frozenset[str] = frozenset()
    beside = "speculation"
    if case.since("0.20.2"):
        refused = frozenset({"min_p", "logit_bias"})
    elif case.since("0.14.1"):
        refused = frozenset({"min_p", "logit_bias", "min_tokens"})
    elif case.since("0.11.2") and truth(case.flags.get("async_scheduling")):
        refused = _PENALTIES | _STRUCTURED | {"bad_words"}
        beside = "speculation under --async-scheduling"
    for name in sorted(case.sampling & refused):
        yield Remark(
            "sampling_refused",
            "refused",
            f"beside {beside}, requests that set {name}{' above 1' if name == 'min_tokens' else ''} are answered with "
            "an error",
            "leave it out of the requests of every arm",
            name,
        )
    if case.release == (0, 28, 0) and truth(case.key("enable_adaptive_verification")) and "logprobs" in case.sampling:
        yield Remark(
            "logprobs_refused",
            "refused",
            "requests for logprobs are answered with an error beside enable_adaptive_verification",
            "leave logprobs out, or enable_adaptive_verification",
        )


def not_drafted(case: Case) -> Iterator[Remark]:
    """Name parameters whose requests are answered without drafting (n-gram and suffix, up to 0.11.2)."""
    if case.kind not in ("ngram", "suffix") or case.since("0.14.1") or case.engine_v0:
        return
    for name in sorted(case.sampling & (_PENALTIES | {"min_p", "logprobs"})):
        later = "" if name == "min_p" else ", or use vLLM 0.14.1 or later"
        yield Remark(
            "sampling_not_drafted",
            "changed",
            f"requests that set {name} are answered without drafting: they measure no speculation",
            f"leave it out of the requests of every arm{later}",
            name,
        )


def ignored(case: Case) -> Iterator[Remark]:
    """Name parameters that vLLM does not apply to drafted tokens, without an error (up to 0.11.2)."""
    if not case.speculates or case.since("0.14.1") or case.engine_v0:
        return
    if case.since("0.11.2"):
        skipped = {"min_p", "logit_bias", "min_tokens"}
        how = "not applied at all (the start warns)"
    else:
        skipped = {"logit_bias", "min_tokens", "bad_words", "allowed_token_ids"}
        # n-gram requests with these do not draft, so there is nothing they could miss.
        skipped |= set() if case.kind == "ngram" else {"min_p", *_PENALTIES}
        skipped |= set() if case.since("0.9.2") else _STRUCTURED
        how = "not applied where tokens are drafted"
    for name in sorted(case.sampling & skipped):
        yield Remark(
            "sampling_ignored",
            "changed",
            f"beside speculation, {name} of a request is {how}: the text differs from the baseline's",
            "leave it out of the requests of every arm",
            name,
        )


def several_answers(case: Case) -> Iterator[Remark]:
    """Say that answers of `n > 1` carry no per-request figures (0.29.0 and later)."""
    if case.speculates and case.since("0.29.0") and "n" in case.sampling:
        yield Remark(
            "per_request_missing",
            "note",
            "answers to n > 1 carry no per-request figures of speculation; the server's totals stand",
            "send single requests where every request's own acceptance matters",
        )


RULES: tuple[Rule, ...] = (refused_requests, not_drafted, ignored, several_answers)
