"""Renders the templates of the web pages. All values are escaped, and no page contains or loads a script of others."""

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import urlencode

from markupsafe import Markup
from msgspec import Struct, structs
from starlette.requests import Request
from starlette.responses import Response

from config.errors import FlorilegiumError, NotFound, RateLimited, retry_after_seconds
from config.times import parse_time
from server.admission import Admission
from server.console.language import (
    LANGUAGES,
    N_,
    _,
    find_form,
    find_text,
    ngettext,
    preferences,
    script_catalogs,
    thousands,
    use_preferences,
)
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
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".png": "image/png", ".svg": "image/svg+xml"}
_IMMUTABLE = {"Cache-Control": "public, max-age=31536000, immutable"}
_FAVICON_HEADERS = {"Cache-Control": "public, max-age=86400"}
# What browsers need to install the pages as an app.
MANIFEST_PATH = "/manifest.webmanifest"
SERVICE_WORKER_PATH = "/service-worker.js"
OFFLINE_PATH = "/offline"


@cache
def asset_files() -> dict[str, bytes]:
    """Returns the content of each file by name. Read on first use: only pages need them, not MCP."""
    files = sorted(file for file in _DIRECTORY.iterdir() if file.suffix in _MEDIA_TYPES)
    contents = {file.name: file.read_bytes() for file in files}
    scripts = [content.decode() for name, content in contents.items() if name.endswith(".js")]
    return contents | script_catalogs(scripts)


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

    async def manifest(self, request: Request) -> Response:
        """Describes the app (W3C Web Application Manifest), and where other apps of a phone share texts to."""
        self._admission.check_origin(Headers(request.scope["headers"]))
        use_preferences(request.scope)
        icons = [
            {"src": asset_url(f"icon-{name}.png"), "sizes": f"{size}x{size}", "type": "image/png", "purpose": purpose}
            for name, size, purpose in (("192", 192, "any"), ("512", 512, "any"), ("maskable", 512, "maskable"))
        ]
        fields = {"title": "title", "text": "text", "url": "url"}
        manifest = {
            "id": "/",
            "name": "Florilegium",
            "description": _("Search your library, and save what you read."),
            "lang": preferences().language.tag,
            "dir": preferences().language.direction,
            "start_url": "/",
            "scope": "/",
            "display": "standalone",
            "background_color": "#fdfcf9",
            "theme_color": "#7a2e1d",
            "icons": icons,
            "shortcuts": [{"name": _("New note"), "url": "/new"}],
            # In the body, because an address cannot hold a long text.
            "share_target": {
                "action": "/share",
                "method": "POST",
                "enctype": "application/x-www-form-urlencoded",
                "params": fields,
            },
        }
        return Response(json.dumps(manifest), 200, {"Cache-Control": "no-cache"}, "application/manifest+json")

    async def service_worker(self, request: Request) -> Response:
        """A script that shows a page of its own if the server cannot be reached. It keeps that page and nothing
        else."""
        self._admission.check_origin(Headers(request.scope["headers"]))
        files = [OFFLINE_PATH, asset_url("console.css"), asset_url("favicon.svg")]
        script = f"const FILES = {json.dumps(files)};\n".encode() + asset_files()["service-worker.js"]
        return Response(script, 200, {"Cache-Control": "no-cache"}, _MEDIA_TYPES[".js"])

    async def offline(self, request: Request) -> Response:
        sentences = [_("The server cannot be reached. Check the connection, and reload the page.")]
        return render_page("message.html", title=_("You are offline"), sentences=sentences)


MONTHS = (
    *(N_("Jan"), N_("Feb"), N_("Mar"), N_("Apr"), N_("May"), N_("Jun")),
    *(N_("Jul"), N_("Aug"), N_("Sep"), N_("Oct"), N_("Nov"), N_("Dec")),
)
_DAYS_MAX = 7


def month_text(month: date) -> str:
    return _("%(month)s %(year)s", month=_(MONTHS[month.month - 1]), year=month.year)


def date_text(moment: date) -> str:
    return _("%(day)s %(month)s %(year)s", day=moment.day, month=_(MONTHS[moment.month - 1]), year=moment.year)


def relative_time(time: str, now: datetime) -> str:
    """Returns how long ago a time in the stored form was, or its date if that is more than a week. Text that is not a
    time is returned as it is."""
    try:
        moment = parse_time(time)
    except (ValueError, OverflowError):
        return time
    seconds = (now - moment).total_seconds()
    if not 0 <= seconds < _DAYS_MAX * 86400:
        return date_text(moment)
    if seconds < 60:
        return _("just now")
    if seconds < 3600:
        return ngettext("%(num)s minute ago", "%(num)s minutes ago", int(seconds // 60))
    if seconds < 86400:
        return ngettext("%(num)s hour ago", "%(num)s hours ago", int(seconds // 3600))
    return ngettext("%(num)s day ago", "%(num)s days ago", int(seconds // 86400))


def clock_time(milliseconds: int) -> str:
    """Returns a position in a recording, `1:02:03`."""
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


# Items contain text from anywhere. If escaping ever failed, the policy still stops foreign scripts, loads and forms.
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:{media}; "
    "manifest-src 'self'; worker-src 'self'; "
    # A script of a page can play a file that the person chose on this device; it is not uploaded.
    "media-src blob:{media}; base-uri 'none'; form-action {form_action}; frame-ancestors 'none'"
)
_HEADERS = {
    "Cache-Control": "private, no-store",
    # With `no-referrer`, browsers would send forms with `Origin: null`, which cannot be checked (Fetch, "append a
    # request `Origin` header").
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


def render_page(
    template: str, *, status: int = 200, form_action: str = "'self'", media_origin: str = "", **values: Any
) -> Response:
    """Returns a page. `form_action` lists where its forms may lead, redirects included (CSP's `form-action`).
    `media_origin` is a server from which the person chose to play a recording or show an image."""
    text = render_text(template, **values)
    policy = _POLICY.format(form_action=form_action, media=f" {media_origin}" if media_origin else "")
    return Response(text, status, {**_HEADERS, "Content-Security-Policy": policy}, "text/html")


def render_text(template: str, **values: Any) -> str:
    """Returns a part of a page."""
    return _environment().get_template(template).render({"preferences": preferences(), **values})


def _size_text(size: int, binary: bool = False) -> str:
    """Returns a size such as `4.3 MB`. Next to text that runs from right to left, it would be shown as `MB 4.3` without
    the isolates around it (UAX #9, rule N1)."""
    from jinja2.filters import do_filesizeformat  # noqa: PLC0415 - as below

    text = do_filesizeformat(size, binary)
    return f"\u2066{text}\u2069" if preferences().language.direction == "rtl" else text


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - only pages need it, not MCP

    # The texts of catalogs may contain HTML; the values that they are filled with are escaped.
    def gettext(message: str, **values: Any) -> Markup:
        return Markup(find_text(message)) % values  # noqa: S704

    def ngettext(singular: str, plural: str, number: int, **values: Any) -> Markup:
        return Markup(find_form(singular, plural, number)) % {"num": thousands(number), **values}  # noqa: S704

    loader = FileSystemLoader(Path(__file__).with_name("templates"))
    # A value that a template needs and does not get is an error, not an empty text.
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    environment.policies["ext.i18n.trimmed"] = True  # line breaks of a template are not part of a text
    # `{% trans %}` hands values over instead of formatting the text itself.
    environment.newstyle_gettext = True  # type: ignore[attr-defined]  # added by the extension
    environment.globals |= {
        "_": gettext,
        "gettext": gettext,
        "ngettext": ngettext,
        "languages": LANGUAGES,
        "asset_url": asset_url,
        "at_time": address_at_time,
        "permalink": Permalinks("").of,
        "style_path": asset_url("console.css"),
        "version": VERSION,
    }
    filters: dict[str, Callable[..., str]] = {
        "ago": lambda time: relative_time(time, datetime.now(UTC)),
        "filesizeformat": _size_text,
        "thousands": thousands,
        "translated": find_text,  # a word of the server, such as a state
    }
    environment.filters |= filters
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
        values = {**structs.asdict(self), "offset": "", **changes}
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
        seconds = retry_after_seconds(error.retry_after_s)
        return _("Too many failed attempts. Try again in %(seconds)s s.", seconds=seconds)
    text = find_text(error.message.removeprefix("password: ").removeprefix("name: "))
    return text[:1].upper() + text[1:] + "."
