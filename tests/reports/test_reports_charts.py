"""Every plot has a name for who cannot see it, and the class by which the page's style finds it in the dark."""

import re
from typing import Any

import pytest
import vl_convert

from draftworth.reports import charts
from draftworth.reports.trial import curves, draw

STEP = {"tokens": 4, "ms": 9.0, "low": 8.0, "high": 10.0}
NAMES = ("baseline", "draft_model-k3-SmolLM2-135M-Instruct", "draft_model-k3-cut")
TIMED = [
    {"minutes": float(at), "value": 9.0 + at, "low": 8.5, "high": 12.0, "arm": name} for at, name in enumerate(NAMES)
]
PLOTS: dict[str, Any] = {
    "by class": lambda: curves.by_class(
        [{"class": f"class {at}", "arm": name, "ms": 2.0} for at in range(9) for name in ("a", "b")], ["a", "b"], "ms"
    ),
    "positions": lambda: curves.positions([{"position": at, "share": 0.5} for at in (1, 2, 3)], []),
    "staircase": lambda: curves.staircase([{**STEP, "what": "measured"}], [{**STEP, "name": "a"}]),
    "over time": lambda: curves.over_time(TIMED, "baseline", "TPOT (ms a token)"),
    "paying": lambda: curves.paying(
        [
            {"length": 1.5, "times": 0.9, "low": 0.8, "high": 1.0},
            {"length": 2.5, "times": 1.2, "low": 1.1, "high": 1.3},
        ],
        {"length": 2.0, "low": 1.7, "high": 2.4},
    ),
    "waterfall": lambda: draw.waterfall(
        [{"name": "a", "start": 0.0, "end": 3.0, "how": "total", "low": None, "high": None, "text": "3"}], "ms"
    ),
}


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_found_by_its_style_and_by_who_cannot_see_it(name: str) -> None:
    drawn = draw.finished(PLOTS[name](), r'arm \d "x" of b\1')
    tag = drawn[: drawn.index(">") + 1]
    assert tag.startswith('<svg class="plot" role="img" aria-label="arm \\d &quot;x&quot; of b\\1" viewBox="0 0 380 ')
    assert "width=" not in tag
    assert "height=" not in tag
    used = set(re.findall(r'(?:fill|stroke)="(#\w+)"', drawn))
    assert used <= {"#000", *charts._COLOURS}, "each colour has another one for a dark screen"


def test_long_names_of_a_legend_stand_below_each_other_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = []
    draws = vl_convert.vegalite_to_svg

    def seen(spec: dict[str, Any]) -> str:
        columns.append(spec["config"]["legend"]["columns"])
        return str(draws(spec))

    monkeypatch.setattr(vl_convert, "vegalite_to_svg", seen)
    drawn = draw.finished(PLOTS["over time"](), "text")
    assert all(f">{name}<" in drawn for name in NAMES)
    draw.finished(curves.over_time([{**TIMED[0], "arm": "a"}, {**TIMED[1], "arm": "b"}], "a", "TPOT"), "text")
    endless = draw.finished(curves.over_time([{**TIMED[0], "arm": "x" * 63}], "x" * 63, "TPOT"), "text")
    assert columns == [1, 2, 1]
    assert f">{'x' * 41}…<" in endless


def test_lanes_whose_names_begin_alike_can_be_told_apart() -> None:
    rows = [{"name": name, "value": 1.1, "low": 1.0, "high": 1.2, "how": "neither", "text": "1"} for name in NAMES]
    drawn = draw.finished(draw.forest(rows, [], "ratio", 0.02), "text")
    assert ">draft_mo…nstruct<" in drawn
    assert ">draft_mo…-k3-cut<" in drawn
