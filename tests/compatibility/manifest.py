"""The promises of each design we are compatible with, and the tests that verify them."""

from msgspec import Struct


class Promise(Struct, frozen=True, kw_only=True):
    """`tests` are named as `module::function`, from the root. `differs` says how and why, if we differ on purpose."""

    id: str
    says: str
    tests: tuple[str, ...]
    differs: str | None = None
