"""The terminal lines and the page of a benchmark."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.reports.reports_records import HOSTILE, bench, counts, point, sweep_points

from draftworth.bench.summary import Spread
from draftworth.findings import Code, find
from draftworth.reports.bench import html, lines, write_html
from draftworth.reports.plots import bench_plots


class _Page(HTMLParser):
    """What a reader gets: cells by row, and every attribute."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        self.cell = tag in {"td", "th"}
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if self.cell:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.cell = False

    def handle_data(self, data: str) -> None:
        if self.cell:
            self.rows[-1][-1] += data


def spread_of(mean: float) -> Spread:
    return Spread(n=8, mean=mean, p50=mean, p90=mean, p99=mean)


def row_of(name: str, found: list[str]) -> str:
    return next(line for line in found if line.strip().startswith(name))


# --- the terminal


def test_the_first_line_says_what_was_measured() -> None:
    first = lines(bench(point()))[0]
    assert all(word in first for word in ("http://gpu-7:8000", "llama", "vllm 0.32.0", "0.2.0"))


def test_figures_stand_in_the_row_of_their_point() -> None:
    found = lines(bench(*sweep_points()))
    figures = row_of("16 at a time, 1024 out", found).removeprefix("16 at a time, 1024 out")
    assert " ".join(figures.split()) == "40 0 0 800 1,600 26.0 (24.7 to 27.3) 26.0 52.0 1,516"


def test_columns_are_aligned_and_narrow() -> None:
    everything = bench(
        *sweep_points(acceptance=counts(), cached_share=0.3, goodput=0.5, good_share=0.9), limits={"ttft_ms": 500.0}
    )
    found = lines(everything)
    start = next(number for number, line in enumerate(found) if line.startswith("Times"))
    table = found[start : start + 7]
    assert len({len(line) for line in table}) == 1
    assert max(map(len, found)) <= 120


def test_what_is_not_known_is_a_dash_and_never_zero() -> None:
    blank = point(
        ttft_ms=Spread(),
        tpot_ms=Spread(),
        e2e_ms=Spread(),
        throughput=None,
        request_rate=None,
        tokens=None,
        prompt_tokens=None,
    )
    rows = [line for line in lines(bench(blank)) if line.startswith("all requests")]
    assert rows[0].split() == ["all", "requests", "40", "0", "0", "-", "-", "-", "-", "-", "-"]
    assert rows[1].split() == ["all", "requests", "-", "-", "-", "-"]


def test_a_single_prompt_has_a_mean_without_an_interval() -> None:
    single = point(tpot_ms=Spread(n=1, mean=12.34, p50=12.34, p90=12.34, p99=12.34))
    figures = row_of("all requests", lines(bench(single))).split()
    assert figures[7:10] == ["12.3", "12.3", "12.3"]


def test_goodput_acceptance_and_cache_are_shown_only_where_there_are_any() -> None:
    plain = "\n".join(lines(bench(point())))
    assert not any(word in plain for word in ("limits", "speculation", "cached"))
    told = point(acceptance=counts(), cached_share=0.31, goodput=0.44, good_share=0.63)
    found = lines(bench(told, limits={"ttft_ms": 500.0}))
    rates = [line.split() for line in found if line.startswith("all requests")][1]
    assert " ".join(rates).endswith(" 0.44 63 % 88 % 50 % 2.32 31 %")


def test_a_server_that_drafts_nothing_has_no_speculation_columns() -> None:
    silent = counts().model_copy(update={"drafted": 0, "drafting_steps": 0, "accepted": 0})
    assert "speculation" not in "\n".join(lines(bench(point(acceptance=silent))))


def test_categories_stand_below_their_point() -> None:
    found = lines(bench(point(label="1 at a time"), point(category="coding", tpot_ms=spread_of(7.77))))
    at = next(number for number, line in enumerate(found) if line.startswith("1 at a time"))
    assert found[at + 1].startswith("  coding")
    assert "7.77" in found[at + 1]


def test_warnings_come_first_and_every_finding_has_its_advice() -> None:
    found = "\n".join(lines(bench(point())))
    assert found.index("warning (requests_failed)") < found.index("info (few_pairs)")
    assert "  failed requests are kept as rows and left out of every time." in found
    assert "  with few prompts intervals are wide or missing; send more" in found


def test_the_files_are_named_and_an_early_end_is_told() -> None:
    found = lines(bench(error="9 of 10 requests failed"))
    assert "Ended early: 9 of 10 requests failed." in found
    assert all(name in found[-1] for name in ("bench.json", "requests.parquet", "report.html", "20261201-094210"))
    assert not any(line.startswith("Times") for line in found)


# --- the page


def test_the_page_has_the_same_table() -> None:
    page = _Page(html(bench(*sweep_points())))
    rows = {row[0]: row[1:] for row in page.rows if row}
    assert rows["4 at a time, 128 out"][:4] == ["321", "100", "308", "2.80"]
    times = next(row for row in page.rows if row[0] == "4 at a time, 128 out")
    assert times[1:] == ["40", "0", "0", "200", "400", "14.0 (13.3 to 14.7)", "14.0", "28.0", "1,504"]
    assert page.open == []


def test_nothing_of_the_record_becomes_markup() -> None:
    hostile = bench(
        point(label=HOSTILE),
        point(category=f"c{HOSTILE}"),
        model=f"m{HOSTILE}",
        url=f"http://x/{HOSTILE}",
        version=HOSTILE,
        error=HOSTILE,
        source=HOSTILE,
        machine={"processor": HOSTILE},
    )
    page = html(hostile)
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 8


def test_the_page_loads_nothing() -> None:
    text = html(bench(*sweep_points()))
    page = _Page(text)
    assert not {name for name, _ in page.attributes} & {"src", "href", "xlink:href", "srcset", "action", "onload"}
    assert not re.search(r"url\((?!#)|@import|<link|<script|xmlns", text)
    assert "default-src 'none'" in text
    assert "http://" not in text.replace("http://gpu-7:8000", "")


def test_a_sweep_has_plots_and_a_single_point_has_none() -> None:
    sweep = html(bench(*sweep_points()))
    assert sweep.count("<svg") == sweep.count("<figure>") == 3
    assert all(text in sweep for text in ("requests at a time, log scale", "TTFT (ms)", "1,024 out"))
    single = html(bench(point(), point(category="coding")))
    assert "<svg" not in single
    assert "Plots" not in single


def test_goodput_has_a_plot_and_limits_are_drawn_where_they_are_in_sight() -> None:
    points = sweep_points(goodput=0.3, good_share=0.5)
    near = html(bench(*points, limits={"tpot_ms": 25.0}))
    assert near.count("<svg") == 4
    assert "limit 25 ms" in near
    assert ">limit 5,000 ms" not in html(bench(*points, limits={"tpot_ms": 5000.0}))


def test_points_without_figures_are_left_out_of_the_lines() -> None:
    points = [point(n, ttft_ms=Spread() if n == 4 else Spread(p50=9.0, p90=9.0, p99=9.0)) for n in (1, 4, 16)]
    assert len(bench_plots(bench(*points))) == 3
    blank = [point(n, ttft_ms=Spread(), tpot_ms=Spread(), throughput=None) for n in (1, 4)]
    assert bench_plots(bench(*blank)) == []


@pytest.mark.parametrize("field", ["rate", "context_tokens", "max_tokens"])
def test_rates_and_lengths_are_plotted_where_they_vary_instead(field: str) -> None:
    points = [point(None if field == "rate" else 8, **{field: n}) for n in (1, 3)]
    assert bench_plots(bench(*points))


def test_the_same_record_gives_the_same_bytes() -> None:
    record = bench(*sweep_points(acceptance=counts()))
    assert html(record) == html(record)
    assert lines(record) == lines(record)


def test_a_warning_is_on_the_page_with_its_advice() -> None:
    text = html(bench(point(), findings=(find(Code.CLIENT_SATURATED, "the client was busy"),)))
    assert "Findings: 1 warning<" in text
    assert "the client was busy." in text
    assert "on a machine with a free core." in text
    assert "12.0 s of processor time in 590 s" in text
    assert "None: nothing was seen" in html(bench(point(), findings=()))


def test_the_page_is_written_beside_the_record(tmp_path: Path) -> None:
    path = write_html(bench(point()), tmp_path)
    assert path == tmp_path / "report.html"
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_nothing_loads_altair_before_there_is_a_plot() -> None:
    code = (
        "import sys; import draftworth.cli, draftworth.reports.bench, draftworth.reports.markdown; "
        "sys.exit('altair' in sys.modules or 'vl_convert' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
