"""The sources this server can search, in the order they are listed."""

from typing import Protocol


class Source(Protocol):
    """One kind of knowledge in a user's library."""

    @property
    def name(self) -> str: ...


SOURCES: tuple[Source, ...] = ()
