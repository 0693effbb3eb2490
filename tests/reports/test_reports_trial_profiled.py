"""A trial's page on its profiles: differences with an interval, or rounded and doubted."""

from pathlib import Path

from draftworth.profiles.base import Spread
from draftworth.profiles.compare import compare
from draftworth.profiles.read import read_profile
from draftworth.reports.trial.profiled import _panel

DATA = Path(__file__).parents[1] / "profiles" / "data"


def test_few_steps_are_rounded_and_many_have_intervals() -> None:
    arms = [read_profile([DATA / f"vllm_h200_moe_{arm}.pt.trace.json.gz"]) for arm in ("baseline", "null-draft")]
    found = compare(*arms)
    few = _panel("baseline", "null-draft", found)
    assert "<td>12.6</td><td>+9</td>" in few
    assert "only 3 decode steps: figures are rounded" in few
    rows = tuple(one.model_copy(update={"interval": Spread(low_ms=1.0, high_ms=2.5)}) for one in found.per_step)
    many = _panel("baseline", "null-draft", found.model_copy(update={"per_step": rows}))
    assert "(+1.000 to +2.500)</td>" in many
