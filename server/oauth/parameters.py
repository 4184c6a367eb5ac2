"""The parameters of an OAuth request, from a query string or a form."""

from collections.abc import Mapping
from urllib.parse import parse_qsl

from msgspec import Struct
from starlette.requests import Request

from auth.oauth.errors import invalid_request
from server.rest.forms import URLENCODED, media_type_of
from server.rest.inputs import read_body

_PARAMETERS_MAX = 50


class Parameters(Struct, frozen=True):
    """RFC 6749 section 3.1: each parameter occurs once, and an empty one counts as missing. Only `resource` may be
    repeated (RFC 8707 section 2)."""

    values: Mapping[str, str]
    resources: tuple[str, ...]
    repeated: str | None = None

    def get(self, name: str) -> str:
        return self.values.get(name, "")

    def require(self, name: str) -> str:
        value = self.get(name)
        if not value:
            raise invalid_request(f"{name}: missing")
        return value

    def require_single(self) -> None:
        if self.repeated is not None:
            raise invalid_request(f"{self.repeated[:60]}: expected one value, got several")


def parse_parameters(text: str) -> Parameters:
    try:
        pairs = parse_qsl(text, encoding="utf-8", errors="strict", max_num_fields=_PARAMETERS_MAX)
    except ValueError as error:
        raise invalid_request(f"expected at most {_PARAMETERS_MAX} parameters in UTF-8") from error
    values: dict[str, str] = {}
    resources, repeated = [], None
    for name, value in pairs:
        if name == "resource":
            resources.append(value)
        elif name in values:
            repeated = repeated or name
        else:
            values[name] = value
    return Parameters(values, tuple(resources), repeated)


async def read_form_parameters(request: Request, max_bytes: int) -> Parameters:
    """Reads the body of a request. Parameters in the query string are ignored, because URLs are logged."""
    if media_type_of(request.headers.get("content-type", "")) != URLENCODED:
        raise invalid_request(f"Content-Type: expected {URLENCODED}")
    body = await read_body(request, request.headers.get("content-length"), max_bytes)
    parameters = parse_parameters(body.decode("latin-1"))
    parameters.require_single()
    return parameters
