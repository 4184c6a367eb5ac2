"""One server for all tests of a module: starting one is cheap, but stopping one gracefully takes its time.

A test that changes the catalog or needs other settings starts its own, with the fixture `samples`.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.live import LiveServer, live, make_settings
from tests.server.sample_catalog import Gate, SampleCatalog


@pytest.fixture(scope="module")
def shared() -> SampleCatalog:
    return SampleCatalog()


@pytest.fixture
def gate(shared: SampleCatalog) -> Gate:
    """The gate called `g` of the shared server, shut."""
    shared.gates.clear()
    return shared.gates["g"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory, shared: SampleCatalog) -> AsyncIterator[LiveServer]:
    """Without rate limits: the tests of a module are one user's calls in quick succession."""
    unlimited = {"rate_user_per_minute": 0, "rate_tool_per_minute": 0, "rate_failures_per_minute": 0}
    settings = make_settings(tmp_path_factory.mktemp("shared"), access_recheck_s=0.05, **unlimited)
    async with live(settings, catalog=shared.catalog) as server:
        yield server
