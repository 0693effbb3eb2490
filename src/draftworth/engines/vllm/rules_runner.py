"""Which engine (V0, V1) and which runner (V1, V2) an arm gets, and whether asynchronous scheduling stays on.

Read in `_is_v1_supported_oracle` (`engine/arg_utils.py`, 0.8.5 to 0.10.2), `use_v2_model_runner`,
`_get_v2_model_runner_unsupported_features`, `_get_v1_model_runner_unsupported_features` and the asynchronous scheduling
block of `VllmConfig.__post_init__` (`config/vllm.py`, 0.11.2 and later; `engine/arg_utils.py` before).
"""

from collections.abc import Iterator

from draftworth.engines.vllm.case import EAGLE_LIKE, Case, Remark, Rule
from draftworth.engines.vllm.planned_flags import truth

_V2 = "VLLM_USE_V2_MODEL_RUNNER"


def effective_runner(case: Case) -> str | None:
    """Return `V1` or `V2` as the arm's method leaves it; None where it cannot be told."""
    if _asked(case) is not None:
        return case.runner
    if v2_lacks(case):
        return "V1"
    return "V2" if v1_lacks(case) else case.runner


def v2_lacks(case: Case) -> tuple[str, ...]:
    """Return what of the arm's speculation this release's V2 runner does not do."""
    if not case.speculates or not case.since("0.20.2"):
        return ()
    lacking: list[str] = []
    kind = case.kind
    if case.since("0.32.0"):
        gone = ("suffix", "custom_class") if case.since("0.33.0") else ("suffix", "custom_class", "medusa")
        missing = kind in (*gone, "mlp_speculator")
    else:
        done = {"eagle", "eagle3", "mtp"}
        done |= {"dflash"} if case.since("0.24.0") else set()
        done |= {"dspark"} if case.since("0.25.0") else set()
        done |= {"extract_hidden_states"} if case.since("0.29.0") else set()
        missing = kind is not None and kind not in done
    if missing:
        lacking.append(f"method {kind!r}")
    if truth(case.key("parallel_drafting")) and case.since("0.24.0") and kind not in ("dflash", "dspark"):
        lacking.append("parallel_drafting")
    if truth(case.key("use_heterogeneous_vocab")) and case.since("0.32.0"):
        lacking.append("use_heterogeneous_vocab")
    if case.key("num_speculative_tokens_per_batch_size") and case.since("0.24.0") and not case.since("0.25.0"):
        lacking.append("num_speculative_tokens_per_batch_size")
    if kind == "eagle3" and (case.number("pipeline_parallel_size") or 1) > 1 and not case.since("0.32.0"):
        lacking.append("EAGLE-3 with pipeline parallelism")
    return tuple(lacking)


def v1_lacks(case: Case) -> tuple[str, ...]:
    """Return what of the arm's speculation this release's V1 runner does not do."""
    lacking: list[str] = []
    if case.method == "dspark" and case.since("0.25.0"):
        lacking.append("method 'dspark'")
    if truth(case.key("enable_adaptive_verification")) and case.since("0.28.0"):
        lacking.append("enable_adaptive_verification")
    if case.key("draft_lm_head_quantization") is not None and case.since("0.33.0"):
        lacking.append("draft_lm_head_quantization")
    return tuple(lacking)


def runner(case: Case) -> Iterator[Remark]:
    """Say where the environment's runner cannot do the arm, and where the arm changes the runner."""
    asked = _asked(case)
    wanted, lacking = ("V2", v2_lacks(case)) if asked else ("V1", v1_lacks(case))
    if asked is not None and lacking:
        yield Remark(
            "runner_refused",
            "refused",
            f"{_V2}={int(asked)} asks for the {wanted} runner, which lacks {' and '.join(lacking)}",
            f"take {_V2} out of this arm's environment",
        )
    if asked and case.on_cpu and case.since("0.24.0") and not case.since("0.33.0"):
        yield Remark(
            "runner_refused",
            "refused",
            f"{_V2}=1 asks for the V2 runner, which needs Triton, and this server runs on a CPU",
            f"take {_V2} out of this arm's environment",
            "triton",
        )
    if asked is not None or not case.since("0.24.0"):
        return
    if v2_lacks(case) and case.runner != "V1":
        sure = case.runner == "V2"
        yield Remark(
            "runner_changes",
            "changed" if sure else "note",
            f"the V2 runner lacks {' and '.join(v2_lacks(case))}, so this arm runs on V1"
            + (" and the baseline on V2" if sure else "; a baseline may run on V2 (the model's architecture decides)"),
            f"add a baseline under {_V2}=0 as a further arm, to tell the runner from speculation",
        )
    elif v1_lacks(case) and case.runner == "V1" and case.told_runner:
        yield Remark(
            "runner_changes",
            "changed",
            f"{' and '.join(v1_lacks(case))} needs the V2 runner, and the running server is on V1",
            f"add a baseline under {_V2}=1 as a further arm, or see in its log why it is on V1",
        )


def engine(case: Case) -> Iterator[Remark]:
    """Say where a release of before 0.11 runs the arm on another engine, and what its V0 engine refuses."""
    asked = case.variables.get("VLLM_USE_V1")
    if not case.speculates:
        return
    if case.since("0.11.2"):
        if asked == "0":
            yield Remark(
                "engine_switch_ignored",
                "changed",
                "VLLM_USE_V1=0 is no longer read: this vLLM has no V0 engine",
                "take VLLM_USE_V1 out of the environment",
            )
        return
    if case.since("0.10.1.1"):
        if asked == "0":
            yield Remark(
                "engine_v0_without_speculation",
                "changed",
                "VLLM_USE_V1=0 asks for the V0 engine, whose drafting workers this release no longer has",
                "take VLLM_USE_V1=0 out of the environment",
            )
        return
    if asked == "1" and case.falls_back and case.kind not in ("ngram", "eagle", "eagle3"):
        yield Remark(
            "engine_v1_refused",
            "refused",
            f"VLLM_USE_V1=1 does not go with {case.method or 'a draft model'}: only the V0 engine drafts with it",
            "take VLLM_USE_V1=1 out of the environment, and run the baseline with VLLM_USE_V1=0",
        )
    elif asked is None and case.falls_back:
        yield Remark(
            "engine_v0",
            "changed",
            "speculation takes this arm back to the V0 engine while the baseline runs on V1",
            "run the baseline with VLLM_USE_V1=0 as a further arm, or use a newer vLLM",
        )
    if case.engine_v0 and case.kind in ("eagle", "eagle3") and case.on("enable_chunked_prefill"):
        yield Remark(
            "eagle_chunked_prefill",
            "refused",
            "EAGLE and chunked prefill exclude each other on the V0 engine",
            "leave --enable-chunked-prefill out",
        )


def async_scheduling(case: Case) -> Iterator[Remark]:
    """Say where speculation switches asynchronous scheduling off, or is refused beside it.

    On a CPU it is off in every arm (`platforms/cpu.py`), although the log of an arm says that speculation did it.
    """
    if not case.speculates or not case.since("0.10.1.1") or "no_async_scheduling" in case.flags:
        return
    explicit = truth(case.flags.get("async_scheduling")) is True
    if case.since("0.33.0") and effective_runner(case) == "V2":
        return
    why = _async_lacks(case, explicit=explicit)
    if why is None:
        return
    if explicit:
        yield Remark(
            "async_scheduling_refused",
            "refused",
            f"--async-scheduling does not go with {why}",
            "leave --async-scheduling out of this arm, and of its baseline",
        )
    elif case.since("0.14.1") and not case.on_cpu:
        yield Remark(
            "async_scheduling_off",
            "changed",
            f"{why} switches asynchronous scheduling off, which the baseline has",
            "add the baseline under --no-async-scheduling as a further arm, to tell its share",
        )


def _async_lacks(case: Case, *, explicit: bool) -> str | None:
    if not case.since("0.11.2"):
        return "any speculation"
    keeps = set(EAGLE_LIKE)
    if case.since("0.20.2"):
        keeps |= {"ngram_gpu"}
        # Until 0.25.0 a draft model was taken beside the flag, and switched it off where nobody set it.
        keeps |= {"draft_model"} if explicit or case.since("0.28.0") else set()
    if case.since("0.25.0"):
        keeps |= {"dspark"}
    if case.kind is not None and case.kind not in keeps:
        return f"method {case.method!r}"
    return "disable_padded_drafter_batch" if truth(case.key("disable_padded_drafter_batch")) else None


def _asked(case: Case) -> bool | None:
    return truth(case.variables.get(_V2)) if case.since("0.14.1") else None


RULES: tuple[Rule, ...] = (runner, engine, async_scheduling)
