"""Errors as HTML pages, for people who open a permalink in a browser."""

from starlette.responses import Response

from config.errors import FlorilegiumError, Unauthenticated
from config.settings import Settings
from server.console.pages import render_page
from server.middleware import PRIVATE_HEADERS, error_headers

_SIGN_IN_HELP = (
    "This address shows an item to the owner of the library it is in.",
    "Reload the page to enter a user name and password: use any name, and an API key as the password.",
    "Programs send an API key or an access token in the header Authorization: Bearer.",
    "An operator creates an API key with: florilegium key create NAME.",
)
_PAGE_TITLES = {
    400: "Invalid address",
    403: "Not allowed",
    404: "Not found",
    405: "Not allowed",
    429: "Try again in a moment",
    503: "Try again in a moment",
}


def html_error(settings: Settings, error: FlorilegiumError) -> Response:
    """Returns an error page. Browsers can ask for a password but not for a token, so 401 also offers Basic."""
    # Messages are written for a program, as a part of a sentence. The template escapes them.
    message = error.message[:1].upper() + error.message[1:] + "."
    if isinstance(error, Unauthenticated):
        title, sentences = "Sign in to read this", [message, *_SIGN_IN_HELP]
    else:
        title, sentences = _PAGE_TITLES.get(error.status, "Something went wrong"), [message]
    page = render_page("message.html", status=error.status, title=title, sentences=sentences)
    for name, value in {**PRIVATE_HEADERS, **error_headers(settings, error)}.items():
        page.headers[name] = value
    # A second challenge next to Bearer: with it, browsers ask for a password, which may be an API key.
    if isinstance(error, Unauthenticated):
        page.headers.append("WWW-Authenticate", 'Basic realm="Florilegium", charset="UTF-8"')
    return page
