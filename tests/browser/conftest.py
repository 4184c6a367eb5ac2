"""A browser for all tests of a worker, and a server for each module."""

from collections.abc import Iterator

import pytest

from tests.browser.driver import BrowserDriver


@pytest.fixture(scope="session")
def browser() -> Iterator[BrowserDriver]:
    driver = BrowserDriver()
    yield driver
    driver.close()
