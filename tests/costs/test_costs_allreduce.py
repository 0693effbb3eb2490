"""All-reduce: the measured box as it was measured, and sane elsewhere."""

import pytest

from draftworth.costs.allreduce import LINKS, allreduce_us, link
from draftworth.errors import UsageError


@pytest.mark.parametrize(
    ("name", "kib", "us"),
    [("pcie", 32, 48.2), ("pcie", 128, 51.6), ("pcie", 256, 56.5), ("pcie-tuned", 32, 26.2), ("pcie-tuned", 256, 37.3)],
)
def test_the_measured_box_is_as_measured(name: str, kib: int, us: float) -> None:
    assert allreduce_us(kib * 1024, 8, link(name), 64) == pytest.approx(us)


def test_six_tokens_of_kimi_cost_little_more_than_one() -> None:
    # 7168 x 2 bytes a token: 14 KB and 84 KB; "all-reduce grows only ~5-20 %".
    for name in ("pcie", "pcie-tuned"):
        one, six = (allreduce_us(tokens * 7168 * 2, 8, link(name), 64) for tokens in (1, 6))
        assert 1.0 <= six / one <= 1.2


@pytest.mark.parametrize("name", LINKS)
def test_more_bytes_or_more_gpus_never_cost_less(name: str) -> None:
    sizes = [2**power for power in range(10, 27)]
    times = [allreduce_us(size, 8, link(name), 64) for size in sizes]
    assert times == sorted(times)
    by_gpus = [allreduce_us(65536, gpus, link(name), 64) for gpus in (1, 2, 4, 8, 16)]
    assert by_gpus == sorted(by_gpus)
    assert by_gpus[0] == 0


def test_an_unknown_link_lists_the_choices() -> None:
    with pytest.raises(UsageError, match="nvlink, pcie, pcie-tuned"):
        link("carrier-pigeon")
