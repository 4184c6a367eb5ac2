"""What the systems we are compatible with promise their clients, and whether we keep each promise."""

from typing import Literal

from msgspec import Struct

Status = Literal["kept", "kept differently", "not offered"]


class Promise(Struct, frozen=True, kw_only=True):
    """One promise of a system's design.

    `difference` says what the user gets instead and why; `not_offered` says why there is nothing. A promise with
    neither is kept. `tests` are `path::function` from the repository root; `tests/conftest.py` requires each of them to
    use a transport.
    """

    id: str
    statement: str
    tests: tuple[str, ...] = ()
    difference: str | None = None
    not_offered: str | None = None

    @property
    def status(self) -> Status:
        if self.not_offered is not None:
            return "not offered"
        return "kept" if self.difference is None else "kept differently"

    @property
    def reason(self) -> str:
        return self.not_offered or self.difference or ""
