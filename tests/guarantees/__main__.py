"""Runs every test that shows a failure or a guarantee and writes docs/guarantees.md.

`--check` only says whether the page is what the marks say; further arguments are pytest's, such as `-k before` for a
part, whose results then join those that the page has.
"""

import platform
import subprocess
import sys
import time

import pytest
from tests.guarantees.page import PAGE, all_named, last_in, merged, outdated, page, problems, results_in


class _Outcomes:
    """A plugin of pytest's that keeps how each test ended."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid.partition("[")[0]
        if report.when == "call" or report.outcome != "passed":
            reason = getattr(report, "wasxfail", None)
            outcome = f"known gap: {reason}" if reason is not None and report.skipped else report.outcome
            self.found.setdefault(test, []).append(outcome)


def main(arguments: list[str]) -> int:
    """Run and write, or check. Returns an exit code."""
    wrong = problems()
    if wrong:
        sys.stderr.write("\n".join(wrong) + "\n")
        return 1
    if arguments == ["--check"]:
        why = outdated()
        if why:
            sys.stderr.write(f"{why}; run: make guarantees\n")
        return 1 if why else 0
    old = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    outcomes = _Outcomes()
    code = pytest.main([*all_named(), *arguments], plugins=[outcomes])
    results = results_in(old) | {test: merged(found) for test, found in outcomes.found.items()}
    known = {test: result for test, result in results.items() if result != "not run"}
    last = _today() if not arguments or last_in(old) == "never" else last_in(old)
    PAGE.write_text(page(known, last), encoding="utf-8")
    return int(code)


def _today() -> str:
    version = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=False).stdout.split()
    kernel = platform.release().partition("-")[0]
    return f"{time.strftime('%Y-%m-%d')}, systemd {version[1] if len(version) > 1 else '?'}, Linux {kernel}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
