"""The readers of files are forked, which takes less time than starting them; `tests/sources/importers` starts them."""

from collections.abc import Iterator

import pytest

from tests.servers.fork_server import forked_readers


@pytest.fixture(scope="package", autouse=True)
def _forked_readers() -> Iterator[None]:
    with forked_readers():
        yield
