"""A Valkey server that a test can stop."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.valkey import ValkeyProcess, own_valkey


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[ValkeyProcess]:
    with own_valkey(tmp_path) as process:
        yield process
