"""Each test has a home and a lock folder of its own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTWORTH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DRAFTWORTH_LOCKS", str(tmp_path / "locks"))
