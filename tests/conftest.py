"""The hypothesis profile of all tests, and the check that tests named in a compatibility manifest use a transport."""

from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.compatibility.page import SYSTEMS
from tests.transport_requests import require_transport

# No deadlines, because timing on a busy machine says nothing about correctness.
settings.register_profile("florilegium", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("florilegium")

_NAMED_TESTS = frozenset(test for system in SYSTEMS.values() for promise in system.promises for test in promise.tests)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with require_transport(item.nodeid, _NAMED_TESTS):
        return (yield)
