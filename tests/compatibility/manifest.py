"""The requirements of each system we are compatible with, and the tests that verify them."""

from msgspec import Struct


class Requirement(Struct, frozen=True, kw_only=True):
    """What a system specifies. `tests` are `path::function` from the repository root. `difference` says how and why we
    deviate on purpose."""

    id: str
    statement: str
    tests: tuple[str, ...]
    difference: str | None = None
