"""The version that is installed; the number itself stands in pyproject.toml only."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("florilegium")
except PackageNotFoundError:  # run from a tree that was never installed
    VERSION = "0.0.0"
