"""Renders the templates of the web pages. All values are escaped, and no page contains or loads a script of others."""

import hashlib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from config.errors import FlorilegiumError, NotFound, RateLimited, retry_after_seconds
from config.times import parse_time
from server.admission import Admission
from server.tools.research import Permalinks
from server.transports.headers import Headers
from server.version import VERSION, address_at_time

if TYPE_CHECKING:
    from jinja2 import Environment


# -- assets ------------------------------------------------------------------------------------------------------------
# The files that pages load: style sheet, scripts and icon.
#
# Their address contains a hash of all of them, so that browsers can cache them forever and never mix two versions.
# Scripts import each other by relative paths, which is why they share one hash.

ASSET_PATH = "/static/{version}/{name}"
FAVICON_PATH = "/favicon.ico"
_DIRECTORY = Path(__file__).with_name("static")
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_IMMUTABLE = {"Cache-Control": "public, max-age=31536000, immutable"}
_FAVICON_HEADERS = {"Cache-Control": "public, max-age=86400"}


@cache
def asset_files() -> dict[str, bytes]:
    """Returns the content of each file by name. Read on first use: only pages need them, not MCP."""
    files = sorted(file for file in _DIRECTORY.iterdir() if file.suffix in _MEDIA_TYPES)
    return {file.name: file.read_bytes() for file in files}


@cache
def asset_url(name: str) -> str:
    """Returns the path of a file on this server."""
    assert name in asset_files(), f"{name} is not a file of server/console/static"
    return f"/static/{_version()}/{name}"


@cache
def _version() -> str:
    digest = hashlib.sha256()
    for name, content in asset_files().items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


class Assets:
    """Serves the files. They hold no user data and need no credential."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    async def file(self, request: Request) -> Response:
        self._admission.check_origin(Headers(request.scope["headers"]))
        name = request.path_params["name"]
        content = asset_files().get(name) if request.path_params["version"] == _version() else None
        if content is None:
            raise NotFound("path", request.scope["path"][:200])
        return Response(content, 200, _IMMUTABLE, _MEDIA_TYPES[Path(name).suffix])

    async def favicon(self, request: Request) -> Response:
        """Browsers request this path for pages without an icon, such as JSON."""
        self._admission.check_origin(Headers(request.scope["headers"]))
        return Response(asset_files()["favicon.svg"], 200, _FAVICON_HEADERS, _MEDIA_TYPES[".svg"])


_UNITS = (("minute", 60), ("hour", 3600), ("day", 86400))
_DAYS_MAX = 7


def relative_time(time: str, now: datetime) -> str:
    """Returns how long ago a time in the stored form was, or its date if that is more than a week. Text that is not a
    time is returned as it is."""
    try:
        moment = parse_time(time)
    except (ValueError, OverflowError):
        return time
    seconds = (now - moment).total_seconds()
    if not 0 <= seconds < _DAYS_MAX * 86400:
        return f"{moment.day} {moment:%b} {moment.year}"
    if seconds < 60:
        return "just now"
    unit, size = next((unit, size) for unit, size in reversed(_UNITS) if seconds >= size)
    count = int(seconds // size)
    return f"{count} {unit} ago" if count == 1 else f"{count} {unit}s ago"


def clock_time(milliseconds: int) -> str:
    """Returns a position in a recording, `1:02:03`."""
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


# Items contain text from anywhere. If escaping ever failed, the policy still stops foreign scripts, loads and forms.
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action {form_action}; frame-ancestors 'none'"
)
_HEADERS = {
    "Cache-Control": "private, no-store",
    # With `no-referrer`, browsers would send forms with `Origin: null`, which cannot be checked (Fetch, "append a
    # request `Origin` header").
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


def render_page(template: str, *, status: int = 200, form_action: str = "'self'", **values: Any) -> Response:
    """Returns a page. `form_action` lists where its forms may lead, redirects included (CSP's `form-action`)."""
    text = render_text(template, **values)
    policy = _POLICY.format(form_action=form_action)
    return Response(text, status, {**_HEADERS, "Content-Security-Policy": policy}, "text/html")


def render_text(template: str, **values: Any) -> str:
    """Returns a part of a page."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - only pages need it, not MCP

    loader = FileSystemLoader(Path(__file__).with_name("templates"))
    # A value that a template needs and does not get is an error, not an empty text.
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {
        "asset_url": asset_url,
        "at_time": address_at_time,
        "permalink": Permalinks("").of,
        "style_path": asset_url("console.css"),
        "version": VERSION,
    }
    environment.filters |= {"ago": lambda time: relative_time(time, datetime.now(UTC)), "thousands": "{:,}".format}
    return environment


# -- page form ---------------------------------------------------------------------------------------------------------
# The choices in the address of a page, which is the whole state of the page.

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

    def paging(self, next_offset: int | None) -> dict[str, str]:
        """Returns the addresses of the next page and the first one for the template; empty if there is none."""
        return {
            "next_address": self.address(offset=str(next_offset)) if next_offset is not None else "",
            "first_address": self.address() if self.offset else "",
        }


def form_error(error: FlorilegiumError) -> str:
    """Returns an error as it is shown above a form, where the name of the field is clear."""
    if isinstance(error, RateLimited):
        return f"Too many failed attempts. Try again in {retry_after_seconds(error.retry_after_s)} s."
    text = error.message.removeprefix("password: ").removeprefix("name: ")
    return text[:1].upper() + text[1:] + "."
