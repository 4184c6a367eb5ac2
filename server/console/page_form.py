"""The choices in the address of a page, which is the whole state of the page."""

from typing import ClassVar, Self
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import asdict
from starlette.requests import Request

_OFFSET_MAX_DIGITS = 9


class PageForm(Struct, frozen=True, kw_only=True):
    """Subclasses add a field for every choice, with the name that it has in the address."""

    path: ClassVar[str]
    field_max_chars: ClassVar[int]

    offset: str = ""

    @classmethod
    def of(cls, request: Request) -> Self:
        values = request.query_params
        return cls(**{name: values.get(name, "").strip()[: cls.field_max_chars] for name in cls.__struct_fields__})

    @property
    def position(self) -> int:
        return int(self.offset) if self.offset.isdecimal() and len(self.offset) <= _OFFSET_MAX_DIGITS else 0

    def address(self, **changes: str) -> str:
        """Returns the address of the page with other choices. It starts at the first row, unless `offset` is given."""
        values = {**asdict(self), "offset": "", **changes}
        query = urlencode({name: value for name, value in values.items() if value})
        return f"{self.path}?{query}" if query else self.path
