"""Settings for tests, which may also vary the fixed values, to make a limit small or an interval short."""

from typing import Any

from config.settings import FixedValues, Settings


def build_settings(**values: Any) -> Settings:
    """Returns settings. Names of fixed values are accepted as well."""
    fixed = {name: values.pop(name) for name in FixedValues.__struct_fields__ if name in values}
    return Settings(**values, fixed=FixedValues(**fixed))
