"""Whether a null draft drafts nothing: not on vLLM's V2 runner, whose n-gram drafts are filled up in every step."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from draftworth.bench.machine import device_here
from draftworth.errors import RefusedError
from draftworth.trials.diagnostics import NULL

if TYPE_CHECKING:
    from draftworth.trials.config import TrialConfig


def refuse_padded(config: "TrialConfig", command: Sequence[str], version: str | None) -> None:
    """Refuse a null draft where this release runs it on a runner that verifies drafts in every step.

    Source: `v1/worker/gpu/spec_decode/ngram/speculator.py` of vLLM 0.32 fills missing drafts with the last token.

    Args:
        config: the trial's file.
        command: what starts the baseline.
        version: the engine's; None where it is not known, and nothing is refused.

    Raises:
        RefusedError: it would draft.
    """
    if version is None or config.service.engine != "vllm":
        return
    from draftworth.engines.base import StartupFacts  # noqa: PLC0415 - lazy
    from draftworth.engines.vllm import releases  # noqa: PLC0415 - lazy
    from draftworth.engines.vllm.case import cases  # noqa: PLC0415 - lazy
    from draftworth.engines.vllm.rules_runner import effective_runner  # noqa: PLC0415 - lazy
    from draftworth.trials.planned import planned_arms  # noqa: PLC0415 - lazy

    judged = releases.judged_as(version)
    null = next((arm for arm in planned_arms(config, command) if arm.name == NULL), None)
    if null is None or judged is None:
        return
    told = {"device_config": "cpu"} if device_here() == "cpu" else {}
    found = cases(null, StartupFacts(version=version, config=told))
    here = [one for one in found if one.release in {judged.low, judged.high}]
    if here and all(effective_runner(one) == "V2" for one in here):
        raise RefusedError(
            f'verdict.diagnostics: "{NULL}": vLLM {version} runs n-gram drafting on its V2 runner, which drafts in '
            'every step, so that no null draft is one; "synthetic:1.0" (every draft refused) tells its mode, or '
            "VLLM_USE_V2_MODEL_RUNNER=0 in the arm and the service if that is how they run"
        )
