import json
from pathlib import Path

import pytest

from draftworth.trials.driver import drive


def test_a_signal_before_anything_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Path) -> tuple[int, str, tuple[str, ...]]:
        raise KeyboardInterrupt

    monkeypatch.setattr(drive, "_drive", interrupted)
    assert drive.drive(tmp_path) == 6
    found = json.loads((tmp_path / "result.json").read_text())
    assert found == {"exit": 6, "text": "a signal ended the trial before it changed anything", "commands": []}
    assert not (tmp_path / "crash.txt").exists()
