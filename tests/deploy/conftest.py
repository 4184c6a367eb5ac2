"""A sample catalog for tests that start a server."""

import pytest

from tests.server.sample_catalog import SampleCatalog


@pytest.fixture
def samples() -> SampleCatalog:
    return SampleCatalog()
