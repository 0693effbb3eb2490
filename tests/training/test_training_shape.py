"""Targets that cannot have a head are refused before anything is started."""

from pathlib import Path

import pytest
from tests.training.training_making import make_target

from draftworth.errors import RefusedError
from draftworth.training.shape import target_shape


def test_the_usual_layers_and_named_ones(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    assert target_shape(target, None).aux == (2, 4, 5)
    shape = target_shape(target, (6, 1, 3))
    assert (shape.aux, shape.layers, shape.hidden, shape.slots) == ((1, 3, 6), 8, 128, 4)


@pytest.mark.parametrize("layers", [2, 4, 5, 6])
def test_too_few_layers_for_the_usual_ones(tmp_path: Path, layers: int) -> None:
    target = make_target(tmp_path, config={"num_hidden_layers": layers})
    with pytest.raises(RefusedError, match=f"{layers} layers are too few .* states.layers"):
        target_shape(target, None)


def test_layers_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="8, 9: the target has 8 layers, so 0 to 7"):
        target_shape(make_target(tmp_path), (2, 8, 9))


def test_an_architecture_without_auxiliary_states_is_refused_with_those_that_have_them(tmp_path: Path) -> None:
    target = make_target(tmp_path, config={"architectures": ["MixtralForCausalLM"]})
    with pytest.raises(RefusedError, match=r"MixtralForCausalLM: .* without auxiliary hidden states.*more"):
        target_shape(target, None)
