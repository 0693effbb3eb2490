import subprocess
import sys
from typing import get_args

import pytest

from draftworth.engines import CHOICES, engine
from draftworth.engines.base import Engine
from draftworth.engines.vllm import VLLM
from draftworth.errors import UsageError
from draftworth.trials.config import EngineName


def test_every_choice_builds_an_engine_of_that_name() -> None:
    assert CHOICES
    assert [engine(name).name for name in CHOICES] == list(CHOICES)


def test_an_adapter_has_every_member_of_the_protocol() -> None:
    adapter: Engine = VLLM()  # the type checker compares the signatures
    wanted = [name for name in (*vars(Engine), *Engine.__annotations__) if not name.startswith("_")]
    assert [name for name in wanted if not hasattr(adapter, name)] == []


def test_an_unknown_engine_is_a_usage_error_that_lists_the_choices() -> None:
    with pytest.raises(UsageError, match=r"unknown engine 'vlm': choose one of .*vllm"):
        engine("vlm")


def test_naming_the_choices_imports_no_engine_and_building_one_no_metrics_parser() -> None:
    code = (
        "import sys, draftworth.engines as e\n"
        "assert not any(m.startswith('draftworth.engines.vllm') for m in sys.modules)\n"
        "e.engine('vllm')\n"
        "assert 'prometheus_client' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    path = [p for p in sys.path if p]
    subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{code}"], check=True)


def test_a_trials_file_takes_every_engine_and_no_two_are_told_by_one_owner() -> None:
    assert get_args(EngineName) == CHOICES
    assert len({engine(name).owner for name in CHOICES}) == len(CHOICES)
