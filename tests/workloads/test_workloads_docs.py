import json
import re
from pathlib import Path

import pytest

from draftworth import workloads

PAGE = Path(__file__).parents[2] / "docs" / "workloads.md"
SECTIONS = re.findall(r"^### `([\w-]+)`$(.*?)(?=^##)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
EXAMPLES = {name: text.split("```jsonl\n")[1].split("```", maxsplit=1)[0] for name, text in SECTIONS}


def test_every_layout_has_an_example() -> None:
    assert set(EXAMPLES) == set(workloads.LAYOUTS)


@pytest.mark.parametrize("layout", workloads.LAYOUTS)
def test_the_examples_of_the_page_are_read_as_what_they_are(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "example.jsonl"
    path.write_text(EXAMPLES[layout], encoding="utf-8")
    workload = workloads.load(path)
    assert (workload.layout, len(workload.prompts), workload.skipped) == (layout, 2, ())
    assert workloads.load(path, layout=layout) == workload
    listed = tmp_path / "example.json"
    listed.write_text(json.dumps([json.loads(line) for line in EXAMPLES[layout].splitlines()]), encoding="utf-8")
    assert [p.messages for p in workloads.load(listed).prompts] == [p.messages for p in workload.prompts]
    expected_turns = {"plain": 0, "spec-bench": 1, "speed-bench": 1, "sharegpt": 1, "trace": 0}
    assert sum(len(p.turns) for p in workload.prompts) == expected_turns[layout]
