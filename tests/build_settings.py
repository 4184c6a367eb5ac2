"""Settings for tests, which may also vary the fixed values, to make a limit small or an interval short."""

from typing import Any

from config.settings import FixedValues, Settings

# For busy machines: in a test, only a deadline that it sets itself should pass.
_LONG_DEADLINES = {
    "call_deadline_ms": 120_000,
    "library_deadline_ms": 60_000,
    "search_deadline_ms": 60_000,
    "fanout_deadline_ms": 60_000,
    "semantic_timeout_ms": 60_000,
}


def build_settings(**values: Any) -> Settings:
    """Returns settings. Names of fixed values are accepted as well."""
    values = {**_LONG_DEADLINES, **values}
    fixed = {name: values.pop(name) for name in FixedValues.__struct_fields__ if name in values}
    return Settings(**values, fixed=FixedValues(**fixed))
