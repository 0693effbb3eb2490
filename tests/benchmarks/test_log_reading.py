"""The benchmark of reading logs: what it writes is read back whole, from every form."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks import log_reading


def test_every_line_of_figures_it_writes_is_read_and_the_result_says_how_long(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    command = [sys.executable, log_reading.__file__, "--size-mb", "2", "--repeats", "1", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert set(found["cases"]) == {
        *("journal", "journal, JSON", "journal, JSON with messages as bytes", "journal, gzipped"),
        *("SGLang, every second line figures", "llama.cpp, nothing but lines of requests"),
    }
    for case in found["cases"].values():
        assert case["windows"] > 0
        assert case["median_s"] > 0


def test_the_table_in_the_docs_is_of_the_stored_result() -> None:
    result = json.loads(log_reading.RESULT.read_text())
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert log_reading.table(result) in page
    assert result["size_mb"] == 1000
    journals = [case["median_s"] for name, case in result["cases"].items() if not name.startswith("llama.cpp")]
    assert all(seconds < 20 for seconds in journals), "the goal: 1 GB in under 20 s"
