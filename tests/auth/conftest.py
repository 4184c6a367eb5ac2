"""Fixtures: a registry in an empty directory, with a manual clock."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from auth.registry import Registry
from tests.auth.auth_fixture import FakeClock


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
