"""The result of a check of `florilegium doctor`."""

from typing import Literal

from msgspec import Struct


class Check(Struct, frozen=True):
    name: str
    outcome: Literal["ok", "warn", "fail"]
    message: str
