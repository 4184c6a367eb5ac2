"""A registry in an empty directory, on a clock that stands still."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from auth.registry import Registry
from tests.auth.scene import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def control_path(tmp_path: Path) -> Path:
    return tmp_path / "control.db"


@pytest.fixture
async def registry(control_path: Path, clock: FakeClock) -> AsyncIterator[Registry]:
    async with Registry.open(control_path, clock=clock) as registry:
        yield registry
