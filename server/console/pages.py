"""Renders the templates of the web pages in the language of the request, and serves the files that pages load.

All values are escaped, and no page contains or loads a script of others.
"""

import gettext as standard_gettext
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import urlencode

from markupsafe import Markup
from msgspec import Struct, structs
from starlette.requests import Request, cookie_parser
from starlette.responses import Response
from starlette.types import Scope

from config.errors import FlorilegiumError, NotFound, RateLimited, retry_after_seconds
from config.times import parse_time
from server.admission import Admission
from server.tools.research import Permalinks
from server.transports.headers import Headers
from server.version import VERSION, address_at_time

if TYPE_CHECKING:
    from jinja2 import Environment

# -- languages ---------------------------------------------------------------------------------------------------------
# The languages of the pages: gettext catalogs, and the language and theme that a browser asks for.
#
# Texts are written in English where they are used: `_("…")` in page code, templates and scripts (see `messages.js`),
# and `{% trans %}` in templates. Placeholders have the form `%(name)s`, and a percent sign is written `%%`. A text that
# is declared before there is a request, in a class or a table, is `N_("…")` and translated with `_` where it is shown.
#
# Catalogs are `translations/LANGUAGE.po`, read as they are: there is nothing to compile. `make translations` adds new
# texts to them, and `tests/server/console/test_translations.py` fails if a translation is missing.

LANGUAGE_COOKIE = "florilegium-language"
THEME_COOKIE = "florilegium-theme"
THEMES = ("light", "dark")
# Nobody has more languages than this in the browser's settings.
_ACCEPT_MAX_CHARS = 500


class Language(Struct, frozen=True, kw_only=True):
    """`name` is what its speakers call it. `tag` is for the attribute `lang`, where a font is chosen by it."""

    name: str
    tag: str
    direction: str = "ltr"
    thousands: str = ","


LANGUAGES = {
    "en": Language(name="English", tag="en"),
    "de": Language(name="Deutsch", tag="de", thousands="."),
    "es": Language(name="Español", tag="es", thousands="."),
    "fr": Language(name="Français", tag="fr", thousands="\u202f"),
    "ja": Language(name="日本語", tag="ja"),
    "zh": Language(name="简体中文", tag="zh-Hans"),
    "ar": Language(name="العربية", tag="ar", direction="rtl"),
}


# -- catalogs ----------------------------------------------------------------------------------------------------------

TRANSLATIONS = Path(__file__).with_name("translations")
_PO_STRING = re.compile(r'(msgid|msgid_plural|msgstr(?:\[\d\])?)?\s*("(?:[^"\\]|\\.)*")\s*\Z')


class Translations(Struct, frozen=True, kw_only=True):
    """`texts` has the forms of each text by its English one: one form, or one for each kind of number."""

    texts: Mapping[str, tuple[str, ...]] = {}
    plural: str = "n != 1"  # an expression of C, which is one of JavaScript too
    form: Callable[[int], int] = lambda number: int(number != 1)


def parse_po(text: str) -> dict[str, dict[str, str]]:
    """Returns the entries of a catalog by `msgid`. The first one, with an empty `msgid`, holds the header."""
    entries: list[dict[str, str]] = []
    keyword = ""
    for line in text.splitlines():
        found = _PO_STRING.match(line)
        if found is None:  # an empty line or a comment
            continue
        keyword = found[1] or keyword
        if found[1] == "msgid":
            entries.append({})
        entries[-1][keyword] = entries[-1].get(keyword, "") + json.loads(found[2])
    return {entry["msgid"]: entry for entry in entries}


@cache
def translations(language: str) -> Translations:
    if language == "en":
        return Translations()
    entries = parse_po((TRANSLATIONS / f"{language}.po").read_text("utf-8"))
    header = entries.pop("")["msgstr"]
    rule = header.partition(" plural=")[2].partition(";")[0]
    assert rule, f"{language}.po has no Plural-Forms"
    texts: dict[str, tuple[str, ...]] = {}
    for message, entry in entries.items():
        forms = tuple(value for keyword, value in entry.items() if keyword.startswith("msgstr"))
        if all(forms):
            texts[message] = forms
    return Translations(texts=texts, plural=rule, form=standard_gettext.c2py(rule))


# -- scripts -----------------------------------------------------------------------------------------------------------
# Scripts use `_` and `ngettext` of messages.js. A page in another language loads LANGUAGE.js with their texts first.

_STRING = r'\s*("(?:[^"\\]|\\.)*")'
_SCRIPT_TEXT = re.compile(rf"(?<![\w.])(?:_\({_STRING}|ngettext\({_STRING},{_STRING})")


def texts_of_script(script: str) -> list[tuple[str, ...]]:
    """Returns the texts in a script, with the form for several if there is one."""
    found = _SCRIPT_TEXT.finditer(script)
    return [tuple(json.loads(text) for text in match.groups() if text is not None) for match in found]


def script_catalogs(scripts: list[str]) -> dict[str, bytes]:
    """Returns the files with the texts of scripts by name, one for each language."""
    messages = [forms[0] for script in scripts for forms in texts_of_script(script)]
    files: dict[str, bytes] = {}
    for language in LANGUAGES:
        known = translations(language)
        texts = {message: known.texts[message] for message in messages if message in known.texts}
        data = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
        files[f"{language}.js"] = f"globalThis.messages={{texts:{data},form:(n)=>Number({known.plural})}}\n".encode()
    return files


# -- request -----------------------------------------------------------------------------------------------------------


class Preferences(Struct, frozen=True, kw_only=True):
    """What the browser wants to see. An empty `chosen_code` or `theme` leaves the choice to the system."""

    code: str = "en"
    chosen_code: str = ""
    theme: str = ""

    @property
    def language(self) -> Language:
        return LANGUAGES[self.code]


_ENGLISH = Preferences()
_preferences: ContextVar[Preferences] = ContextVar("preferences", default=_ENGLISH)
preferences = _preferences.get


def use_preferences(scope: Scope) -> None:
    """Chooses the language and theme of the pages that answer this request: the person's choice in a cookie, then what
    the browser asks for, then English. Called first by everything that answers with a page."""
    headers = {
        name: value.decode("latin-1") for name, value in scope["headers"] if name in (b"cookie", b"accept-language")
    }
    cookies = cookie_parser(headers.get(b"cookie", ""))
    chosen, theme = cookies.get(LANGUAGE_COOKIE, ""), cookies.get(THEME_COOKIE, "")
    chosen = chosen if chosen in LANGUAGES else ""
    code = chosen or _accepted_language(headers.get(b"accept-language", ""))
    _preferences.set(Preferences(code=code, chosen_code=chosen, theme=theme if theme in THEMES else ""))


def _accepted_language(header: str) -> str:
    """Returns the first language of `Accept-Language` that there is a catalog of (RFC 9110 section 12.5.4)."""
    wanted: list[tuple[float, str]] = []
    for part in header[:_ACCEPT_MAX_CHARS].split(","):
        tag, _, weight = part.strip().lower().partition(";q=")
        try:
            wanted.append((-float(weight or 1), tag.partition("-")[0]))
        except ValueError:
            continue
    # Sorting keeps the order of equal weights.
    found = (code for weight, code in sorted(wanted, key=lambda one: one[0]) if weight < 0 and code in LANGUAGES)
    return next(found, "en")


def find_text(message: str) -> str:
    """Returns a text in the language of the request, with its placeholders."""
    return translations(preferences().code).texts.get(message, (message,))[0]


def find_form(singular: str, plural: str, number: int) -> str:
    """Returns the form of a text for a number, with its placeholders."""
    known = translations(preferences().code)
    forms = known.texts.get(singular)
    return forms[known.form(number)] if forms else (singular if number == 1 else plural)


def _(message: str, **values: Any) -> str:
    """Returns a text in the language of the request."""
    return find_text(message) % values


def ngettext(singular: str, plural: str, number: int, **values: Any) -> str:
    """Returns the form of a text for a number, which is `%(num)s` in it."""
    return find_form(singular, plural, number) % {"num": thousands(number), **values}


def N_(message: str) -> str:  # noqa: N802 - the name that gettext's users know
    """Marks a text that is translated later."""
    return message


def thousands(number: int) -> str:
    return f"{number:,}".replace(",", preferences().language.thousands)


# Words of the layers below that pages show with `_` or the filter `translated`: those of kinds of items, roles and
# states, and the errors that people cause. A test fails if one of a kind is missing.
WORDS = (
    *(N_("notes"), N_("media"), N_("chats"), N_("characters"), N_("prompts")),
    *(N_("Notes"), N_("Media"), N_("Chats"), N_("Characters"), N_("Prompts")),
    *(N_("note"), N_("media item"), N_("conversation"), N_("character"), N_("prompt"), N_("message")),
    *(N_("Title"), N_("Text"), N_("Text (Markdown)"), N_("Type"), N_("Address of the original"), N_("Author")),
    *(N_("First message"), N_("Namespace"), N_("Number of the character"), N_("Name"), N_("Description")),
    *(N_("Personality"), N_("Scenario"), N_("Example messages"), N_("System prompt"), N_("Notes of the creator")),
    *(N_("Instructions after the history"), N_("Creator"), N_("Version"), N_("Nickname"), N_("Alternate greetings")),
    *(N_("Greetings in groups"), N_("Prompt ({{name}} is a placeholder)"), N_("Arguments of the prompt")),
    *(N_("Role"), N_("Sender"), N_("Model"), N_("user"), N_("assistant"), N_("system"), N_("tool")),
    *(N_("reader"), N_("writer"), N_("admin"), N_("manager"), N_("tag"), N_("source"), N_("namespace")),
    *(N_("waiting"), N_("running"), N_("done"), N_("cancelled"), N_("failed"), N_("new"), N_("current"), N_("paused")),
    *(N_("not followed"), N_("active"), N_("revoked"), N_("expired"), N_("ok"), N_("warn"), N_("fail")),
    *(N_("discuss"), N_("implement"), N_("review"), N_("closed"), N_("archived")),
    N_("the name or the password is wrong"),
    N_("the current password is wrong"),
    N_("the two new passwords differ"),
    N_("the two passwords differ"),
    N_("the form is no longer valid; go back, reload the page and send it again"),
    N_("this link is not valid any more; ask for a new one"),
    N_("this passkey is registered already"),
    N_("this account has a passkey; use it to sign in"),
    N_("the invitation is not valid; ask for another"),
    N_("only a manager of the group can do this"),
    N_("the group needs a manager: give another member that role first, or delete the group"),
    N_("choose at least one permission and one source, or deny the request"),
    N_("sign in again before you change who has access, or delete your data"),
    N_("this server requires a passkey; add another one before you remove the last"),
)


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


# -- rendering ---------------------------------------------------------------------------------------------------------

MONTHS = (
    *(N_("Jan"), N_("Feb"), N_("Mar"), N_("Apr"), N_("May"), N_("Jun")),
    *(N_("Jul"), N_("Aug"), N_("Sep"), N_("Oct"), N_("Nov"), N_("Dec")),
)
_DAYS_MAX = 7


def month_text(month: date) -> str:
    return _("%(month)s %(year)s", month=_(MONTHS[month.month - 1]), year=month.year)


def relative_time(time: str, now: datetime) -> str:
    """Returns how long ago a time in the stored form was, or its date if that is more than a week. Text that is not a
    time is returned as it is."""
    try:
        moment = parse_time(time)
    except (ValueError, OverflowError):
        return time
    seconds = (now - moment).total_seconds()
    if not 0 <= seconds < _DAYS_MAX * 86400:
        return _("%(day)s %(month)s %(year)s", day=moment.day, month=_(MONTHS[moment.month - 1]), year=moment.year)
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
