"""A REST operation, declared once: from it come its route, its validation, its place in the OpenAPI document and on the
reference page. A handler is given the caller's context and the checked input, and nothing else of the request.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import IO, Any, Literal

from msgspec import Struct
from msgspec.structs import fields

from auth.context import RequestContext
from auth.principal import READ
from config.errors import InvalidParams
from server.protocol.schema import input_schema
from server.rest.errors import DEFAULT_ERROR_FORMAT, ErrorFormat
from server.rest.forms import FormSpec

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Place = Literal["path", "query", "header", "body"]

_VARIABLE = re.compile(r"\{(\w+)(?::\w+)?\}")
_WITH_BODY = frozenset(("POST", "PUT", "PATCH"))


class Upload(Struct, frozen=True):
    """A body that is a file: it is kept on disk while the operation runs, and never held in memory whole."""

    media_type: str
    max_bytes: int
    schema: Mapping[str, Any] | None = None


class UploadRequest(Struct, frozen=True):
    """What the handler of an upload is given: the input, and the file from its beginning."""

    args: Any
    file: IO[bytes]


class Operation(Struct, frozen=True, kw_only=True):
    """`input` holds every value of a request, wherever it stands: what the path names is in the path; the rest is the
    JSON body where the method has one, save for the names in `query` and `headers`; else it is the query string."""

    id: str
    method: Method
    path: str
    summary: str
    description: str
    input: type[Struct]
    # What `handler` returns, as JSON; or media types, if it returns a whole Response: a file, or something streamed.
    response: type[Any] | str | tuple[str, ...]
    handler: Callable[[RequestContext, Any], Awaitable[Any]]
    # The tools that tell the same. It draws on the rate of the first, and is open to a key that is bound to a profile
    # with any of them.
    tools: tuple[str, ...]
    scope: str = READ
    status: int = 200
    query: frozenset[str] = frozenset()
    # Values that come in a header, by the name of the field.
    headers: Mapping[str, str] = {}
    upload: Upload | None = None
    # The body is a form instead of JSON.
    form: FormSpec | None = None
    # With which an input that cannot be read is refused.
    input_error: type[InvalidParams] = InvalidParams
    # Longer than any call may take, where there is more to do than a call does.
    deadline_ms: int | None = None
    # Statuses of its own, beside those that any operation may answer.
    error_statuses: frozenset[int] = frozenset()
    error_format: ErrorFormat = DEFAULT_ERROR_FORMAT
    # Replaces the derived schema of the input where a Struct cannot say it.
    schema: Mapping[str, Any] | None = None

    @property
    def public_path(self) -> str:
        """The path as OpenAPI writes it: `{id:path}` is `{id}`."""
        return _VARIABLE.sub(r"{\1}", self.path)

    @property
    def has_body(self) -> bool:
        """Whether any value is in the body; a PUT may have them all in its address."""
        return "body" in self.places().values()

    def places(self) -> dict[str, Place]:
        """Where each value of the input is sent."""
        named = frozenset(_VARIABLE.findall(self.path))
        names = _names_of(self.input)
        assert named <= set(names), f"{self.id}: the path names what the input does not have"
        return {name: "path" if name in named else self._place_outside_path(name) for name in names}

    def input_schema(self) -> Mapping[str, Any]:
        return self.schema if self.schema is not None else input_schema(self.input)

    def _place_outside_path(self, name: str) -> Place:
        if name in self.headers:
            return "header"
        is_in_body = self.method in _WITH_BODY and self.upload is None and name not in self.query
        return "body" if is_in_body else "query"


@cache
def _names_of(declared: type[Struct]) -> tuple[str, ...]:
    """Kept, because to ask a Struct takes as long as the rest of reading a request."""
    return tuple(field.encode_name for field in fields(declared))
