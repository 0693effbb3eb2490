"""A URL that answers nothing is named as it was typed."""

import pytest
from tests.helpers import free_port

from draftworth.bench.base import Access
from draftworth.errors import UsageError
from draftworth.readings.server import find_server


@pytest.mark.parametrize("behind", ["", "/", "/v1", "/metrics"])
def test_no_page_is_named_that_nobody_typed(behind: str) -> None:
    url = f"http://127.0.0.1:{free_port()}{behind}"
    with pytest.raises(UsageError) as error:
        find_server(url, access=Access())
    assert str(error.value).startswith(f"{url}: connection refused by 127.0.0.1:")
    assert "/prometheus" not in str(error.value)
