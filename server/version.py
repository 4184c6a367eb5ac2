"""The installed version. The number itself is only in pyproject.toml."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("florilegium")
except PackageNotFoundError:  # run from a source tree that was never installed
    VERSION = "0.0.0"
