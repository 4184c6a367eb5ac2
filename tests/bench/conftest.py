"""Benchmarks are no part of the product, and most of their tests run one: all of them are in the second tier."""

from pathlib import Path

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.is_relative_to(Path(__file__).parent):
        item.add_marker(pytest.mark.slow("runs benchmarks"))
