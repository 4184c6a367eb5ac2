"""One server for all tests of a module, because a graceful shutdown takes time.

Tests that change the catalog or need other settings start their own server, with the fixture `samples`.
"""

from collections.abc import AsyncIterator

import pytest

from tests.live import NO_RATE_LIMITS, LiveServer, live, make_settings
from tests.server.sample_catalog import Gate, SampleCatalog


@pytest.fixture(scope="module")
def shared() -> SampleCatalog:
    return SampleCatalog()


@pytest.fixture
def gate(shared: SampleCatalog) -> Gate:
    """The gate `g` of the shared server, closed."""
    shared.gates.clear()
    return shared.gates["g"]


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory, shared: SampleCatalog) -> AsyncIterator[LiveServer]:
    """A server without rate limits, because a module's tests are many calls of one user."""
    settings = make_settings(tmp_path_factory.mktemp("shared"), access_recheck_s=0.05, **NO_RATE_LIMITS)
    async with live(settings, catalog=shared.catalog) as server:
        yield server
