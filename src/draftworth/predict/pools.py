"""Cells of one kind pooled: how far off predictions were, how often their intervals hold, and how wide they are."""

from collections.abc import Sequence
from typing import get_args

import numpy as np

from draftworth.predict.advice import MARGIN
from draftworth.predict.base import CheckedCell, Pool, Range, Source


def pools(cells: Sequence[CheckedCell]) -> tuple[Pool, ...]:
    """Return one pool for each source of which there are cells."""
    by = {source: [one for one in cells if one.source == source] for source in get_args(Source)}
    return tuple(pool(some) for some in by.values() if some)


def pool(cells: Sequence[CheckedCell]) -> Pool:
    """Return what cells of one source say together; there is at least one."""
    errors = np.array([abs(one.error) for one in cells])
    return Pool(
        source=cells[0].source,
        cells=len(cells),
        median_error=float(np.median(errors)),
        p95_error=float(np.quantile(errors, 0.95)),
        wrong_signs=sum(one.sign_right is False for one in cells),
        inside=sum(one.predicted.low <= one.measured.value <= one.predicted.high for one in cells),
        width=float(np.median([one.predicted.high / one.predicted.low for one in cells])),
        measured_width=float(np.median([one.measured.high / one.measured.low for one in cells])),
        decides=sum(decides(one.predicted) for one in cells),
        measured_decides=sum(decides(one.measured) for one in cells),
    )


def decides(speed_up: Range) -> bool:
    """Whether a whole interval lies beyond what is no difference, on either side."""
    return speed_up.low > 1 + MARGIN or speed_up.high < 1 - MARGIN
