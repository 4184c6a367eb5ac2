"""Errors that only HTTP requests can cause."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from config.errors import FlorilegiumError, InvalidParams


class MethodNotAllowed(FlorilegiumError, status=405):
    """The path exists, but not for this method. RFC 9110 section 15.5.6 requires the allowed ones to be listed."""

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        super().__init__(f"method: expected {' or '.join(allowed)}, got {method[:20]!r}")
        self.allowed = tuple(allowed)


class UnsupportedMediaType(FlorilegiumError, status=415):
    """The body's Content-Type is not the expected one.

    The check also stops cross-site posts that a browser sends without a preflight request.
    """

    def __init__(self, content_type: str | None, expected: str = "application/json") -> None:
        got = repr(content_type[:60]) if content_type else "none"
        super().__init__(f"Content-Type: expected {expected}, got {got}")


class Unprocessable(InvalidParams, status=422, code=InvalidParams.code):
    """Invalid input, for APIs whose clients expect 422. `data["loc"]` is FastAPI's location, such as ["query", "q"]."""


@contextmanager
def rename_fields(names: Mapping[str, str]) -> Iterator[None]:
    """Replaces the storage layer's field names in InvalidParams messages with the names that the caller used."""
    try:
        yield
    except InvalidParams as error:
        name, _, rest = error.message.partition(":")
        raise InvalidParams(f"{names.get(name, name)}:{rest}", error.data) from error
