"""d2t and t2d of any content, against a reference that goes token by token."""

from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.heads import heads_making as making

from draftworth.heads.base import Status
from draftworth.heads.check import check_head

V = making.VOCABULARY


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tokens=st.lists(st.integers(0, V - 1), min_size=making.DRAFTED, max_size=making.DRAFTED)
    | st.sets(st.integers(0, V - 1), min_size=making.DRAFTED, max_size=making.DRAFTED).map(sorted)
    | st.lists(st.integers(-3, V + 3), min_size=making.DRAFTED, max_size=making.DRAFTED, unique=True),
    marked=st.sets(st.integers(0, V - 1)) | st.none(),
)
def test_maps_of_any_content(tokens: list[int], marked: set[int] | None, tmp_path: Path) -> None:
    marked = {one for one in tokens if 0 <= one < V} if marked is None else marked
    made = making.eagle3()
    made.tensors["d2t"] = np.array([token - at for at, token in enumerate(tokens)], dtype=np.int64)
    made.tensors["t2d"] = np.array([at in marked for at in range(V)])
    target = tmp_path / "tiny-target"
    if not target.is_dir():
        making.target().write(target)
    found = {one.name: one for one in check_head(made.write(tmp_path / "head"), target, method="eagle3").checks}
    in_range = all(0 <= one < V for one in tokens)
    assert (found["d2t-range"].status is Status.PASSED) == (in_range and len(set(tokens)) == len(tokens))
    rising = all(one < following for one, following in pairwise(tokens))
    assert (found["d2t-order"].status is Status.PASSED) == (rising and tokens != list(range(len(tokens))))
    assert (found["d2t-t2d"].status is Status.PASSED) == (sorted(tokens) == sorted(marked))
    assert found["d2t"].status is Status.PASSED
    assert found["d2t-shape"].status is Status.PASSED
