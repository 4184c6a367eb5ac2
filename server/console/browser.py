"""Browser sessions over HTTP: cookies, forms that no other site can send, and redirects that stay on this server.

A form carries a token that is derived from a secret cookie, and the browser must say that a page of this server sent
it. Before sign-in the secret is that of a cookie for forms only. At sign-in the session gets a new secret, so that a
secret that someone planted before is worthless.
"""

import hmac
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from auth import browser_sessions
from auth.accounts.service import KNOWN_BROWSER_LIFETIME_S, Accounts
from auth.audit import Audit
from auth.rate_limits import network_of
from auth.registry import UserRecord
from config.errors import FlorilegiumError, InvalidParams, OriginRejected
from config.settings import Settings, is_loopback
from config.times import format_time_seconds
from server.console.pages import LANGUAGE_COOKIE, LANGUAGES, THEME_COOKIE, THEMES, _, form_error, render_page
from server.operations.account import browser_name
from server.operations.operation import require_recent_sign_in
from server.rest.errors import UnsupportedMediaType
from server.rest.forms import URLENCODED, FormSpec, media_type_of, read_form
from server.rest.requests import read_body
from server.transports.headers import Headers, OriginGuard

# Forms have a few short fields.
FORM_MAX_BYTES = 64 * 1024

SIGN_IN_PATH = "/sign-in"
SECOND_FACTOR_PATH = "/sign-in/second-factor"
ACCOUNT_PATH = "/account"
HOME_PATH = "/"
# Forms carry the token in this field, and the scripts of pages in this header.
CSRF_FIELD = "csrf_token"
CSRF_HEADER = "X-CSRF-Token"
_CLIENT = "browser"
# The form that changes many items has a field for each.
_FORM = FormSpec(files=frozenset(), parts_max=1000)
_SECRET_MAX_CHARS = 200
_PREFERENCES_LIFETIME_S = 365 * 86400


class SignInRequired(FlorilegiumError, status=401):
    """The page is for people who are signed in. `location` is the sign-in page, which leads back afterwards."""

    def __init__(self, location: str) -> None:
        super().__init__("sign in to see this page")
        self.location = location


class FormRejected(FlorilegiumError, status=403):
    """The form does not carry the token of the browser's session."""

    def __init__(self) -> None:
        super().__init__("the form is no longer valid; go back, reload the page and send it again")


class CsrfTokenRejected(FlorilegiumError, status=403):
    """A REST request with the cookie of a browser, but without the token of its session."""

    def __init__(self) -> None:
        super().__init__(f"{CSRF_HEADER}: expected the token of the browser's session")


class BrowserGuard:
    def __init__(
        self,
        settings: Settings,
        sessions: browser_sessions.BrowserSessions,
        audit: Audit,
        accounts: Accounts,
        notices: browser_sessions.Notices,
    ) -> None:
        base_url = urlsplit(settings.base_url)
        self._settings = settings
        self._sessions = sessions
        self._audit = audit
        self._accounts = accounts
        self._notices = notices
        self._origins = OriginGuard(settings)
        self._own_origin = f"{base_url.scheme}://{base_url.netloc}".lower()
        self._is_loopback = is_loopback(settings.host)
        self._is_secure = base_url.scheme == "https"
        self._lifetime_s = int(settings.browser_session_lifetime_s)
        # Cookies of the session, of forms before sign-in, and of a browser in which someone has signed in before.
        self._session_cookie = browser_sessions.session_cookie_name(settings)
        self._form_cookie = f"{self._session_cookie}-form"
        self._known_cookie = f"{self._session_cookie}-known"

    def check_origin(self, request: Request) -> None:
        """Raises OriginRejected for an unknown host name, and for requests that pages of other sites cause."""
        self._origins.check(Headers(request.scope["headers"]))

    def check_host(self, request: Request) -> None:
        """Raises OriginRejected for an unknown host name only, whichever page causes the request."""
        self._origins.check_probe(Headers(request.scope["headers"]))

    async def session_of(self, request: Request) -> browser_sessions.BrowserSession | None:
        """Returns the session of the browser, or None if there is none that gives access."""
        session = await self._find_session(request)
        return session if session is not None and not session.needs_passkey else None

    async def partial_session_of(self, request: Request) -> browser_sessions.BrowserSession | None:
        """Returns the session of someone who has entered a password and has to use a passkey, too."""
        session = await self._find_session(request)
        return session if session is not None and session.needs_passkey else None

    async def _find_session(self, request: Request) -> browser_sessions.BrowserSession | None:
        secret = self._cookie(request, self._session_cookie)
        return await self._sessions.find(secret) if secret else None

    async def require_session(self, request: Request) -> browser_sessions.BrowserSession:
        """Returns the session of the browser. Raises SignInRequired, which leads back to the page that was requested,
        or to the account if a form was sent."""
        session = await self.session_of(request)
        if session is None:
            raise sign_in_required(request)
        return session

    async def require_recent_session(self, request: Request) -> browser_sessions.BrowserSession:
        """Returns the session of someone who has just signed in. Raises SignInRequired or SignInNeeded."""
        session = await self.require_session(request)
        require_recent_sign_in(browser_sessions.browser_principal(session))
        return session

    async def check_form(self, request: Request, max_bytes: int | None = None) -> Mapping[str, str]:
        """Returns the fields of a form. Raises unless a page of this server sent it, with the token of the session.
        `max_bytes` replaces the limit for forms whose fields are whole texts."""
        self.check_sender(request)
        values = await read_fields(request, max_bytes or FORM_MAX_BYTES)
        await self.check_form_token(request, values.get(CSRF_FIELD, ""))
        return values

    def check_sender(self, request: Request) -> None:
        """Raises unless a page of this server sent the form. The body need not be read for it."""
        self.check_origin(request)
        self._check_own_origin(request)

    async def check_form_token(self, request: Request, token: str) -> None:
        """Raises unless a form carries the token of the browser's session."""
        expected = await self._form_token(request)
        if expected is None or not hmac.compare_digest(expected.encode(), token.encode()):
            raise FormRejected

    def check_api_request(self, request: Request, session: browser_sessions.BrowserSession) -> None:
        """Raises for a REST request that changes something, unless a page of this server sent it with the token of the
        session. Pages of other sites can neither read the token nor set the header."""
        if request.method in ("GET", "HEAD"):
            return
        self._check_own_origin(request)
        token = request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(session.csrf_token.encode(), token.encode()):
            raise CsrfTokenRejected

    def form_secret(self, request: Request) -> str:
        """Returns the secret of the browser before sign-in, or a new one."""
        return self._cookie(request, self._form_cookie) or secrets.token_urlsafe(32)

    def with_form_secret(self, request: Request, response: Response, secret: str) -> Response:
        """Returns the response, which sets the cookie with the secret if the browser does not have it."""
        if self._cookie(request, self._form_cookie) != secret:
            self._set_cookie(response, self._form_cookie, secret, None)
        return response

    async def render(
        self,
        request: Request,
        template: str,
        *,
        error: FlorilegiumError | str = "",
        status: int = 200,
        form_action: str = "'self'",
        **values: Any,
    ) -> Response:
        """Returns a page whose forms can carry `csrf_token`. Before sign-in, it sets the cookie that forms need.
        `error` is shown above the form; an exception also decides the status."""
        if isinstance(error, FlorilegiumError):
            status, error = error.status, form_error(error)
        session = await self.session_of(request)
        secret = "" if session else self.form_secret(request)
        token = session.csrf_token if session else browser_sessions.csrf_token(secret)
        host = urlsplit(self.own_origin(request)).netloc
        notices = [_shown_notice(one) for one in await self._notices.list(session)] if session else []
        shared: dict[str, Any] = {
            "csrf_token": token,
            "server_host": host,
            "notices": notices,
            "page_path": _page_path(request),
        }
        response = render_page(template, status=status, form_action=form_action, error=error, **shared, **values)
        return self.with_form_secret(request, response, secret) if secret else response

    async def dismiss_notices(self, request: Request) -> Response:
        """Dismisses the notices that the page showed, and leads back to it."""
        session = await self.require_session(request)
        values = await self.check_form(request)
        try:
            until = float(values.get("until", ""))
        except ValueError:
            raise InvalidParams("until: expected a time in seconds") from None
        await self._notices.dismiss(session.user.id, until)
        return see_other(safe_path(values.get("next", "")))

    async def set_preferences(self, request: Request) -> Response:
        """Keeps the language and the theme in cookies of the browser, and leads back to the page."""
        values = await self.check_form(request)
        response = see_other(safe_path(values.get("next", "")))
        for field, cookie, known in (("language", LANGUAGE_COOKIE, LANGUAGES), ("theme", THEME_COOKIE, THEMES)):
            # A field that the form does not have stays as it is; an empty one is the choice of the browser.
            if (value := values.get(field)) in known:
                self._set_cookie(response, cookie, value or "", _PREFERENCES_LIFETIME_S)
            elif value == "":
                self._set_cookie(response, cookie, "", 0)
        return response

    def own_origin(self, request: Request) -> str:
        """Returns the origin of this server as the browser sees it; `check_form` has verified it."""
        host = request.headers.get("host", "").lower()
        return f"http://{host}" if self._is_loopback and not self._is_secure else self._own_origin

    def known_secret(self, request: Request) -> str:
        """Returns the secret of a browser in which someone has signed in before, or an empty text."""
        return self._cookie(request, self._known_cookie)

    def record(self, request: Request, action: str, user_id: str, *, target: str = "", detail: str = "") -> None:
        """Records in the audit log what a person did with a browser."""
        address = client_address(request)
        self._audit.record(action, user_id, client=_CLIENT, target=target, address=address, detail=detail)

    async def sign_in(
        self,
        request: Request,
        user: UserRecord,
        location: str,
        *,
        method: str,
        is_by_password: bool = False,
        password_changed_at: float | None = None,
    ) -> Response:
        """Starts a session and leads to `location`. A session that the browser had before ends. `method` is recorded.
        The browser is recognized when the user signs in again, see `auth.accounts.service`. If only a password was
        entered and a passkey is required, it leads to the page for that instead. Raises SignInFailed if the password
        was changed since `password_changed_at`."""
        needs_passkey = is_by_password and self._settings.password_requires_passkey
        # A session that someone planted in this browser must not become that of the user (session fixation).
        await self._end_session(request)
        known_secret, is_new = await self._accounts.remember_browser(user, self.known_secret(request))
        agent = request.headers.get("user-agent", "")
        secret = await self._sessions.create(
            user,
            client_address(request),
            agent,
            is_new_browser=is_new,
            needs_passkey=needs_passkey,
            password_changed_at=password_changed_at,
        )
        detail = f"{method}, new browser" if is_new else method
        self.record(request, "sign_in.password" if needs_passkey else "sign_in", user.id, detail=detail)
        response = see_other(second_factor_path(location) if needs_passkey else location)
        self._set_cookie(response, self._session_cookie, secret, self._lifetime_s)
        self._set_cookie(response, self._form_cookie, "", 0)
        self._set_cookie(response, self._known_cookie, known_secret, int(KNOWN_BROWSER_LIFETIME_S))
        return response

    async def sign_out(self, request: Request, location: str = SIGN_IN_PATH) -> Response:
        """Ends the session and leads to `location`."""
        await self._end_session(request)
        response = see_other(location)
        self._set_cookie(response, self._session_cookie, "", 0)
        return response

    async def _end_session(self, request: Request) -> None:
        if session := await self._find_session(request):
            await self._sessions.revoke(session.user.id, session.id)
            self.record(request, "sign_out", session.user.id)

    async def _form_token(self, request: Request) -> str | None:
        """Returns the token that a form must carry, or None if the browser has no cookie yet."""
        if session := await self.session_of(request):
            return session.csrf_token
        secret = self._cookie(request, self._form_cookie)
        return browser_sessions.csrf_token(secret) if secret else None

    def _cookie(self, request: Request, name: str) -> str:
        # Secrets of this server are short and ASCII. Anything else is not looked up.
        secret = request.cookies.get(name, "")
        return secret if len(secret) <= _SECRET_MAX_CHARS and secret.isascii() else ""

    def _set_cookie(self, response: Response, name: str, value: str, max_age_s: int | None) -> None:
        # SameSite=Lax: a link from another site opens a page with the session, but a form of it does not send it.
        response.set_cookie(name, value, max_age_s, path="/", secure=self._is_secure, httponly=True, samesite="lax")

    def _check_own_origin(self, request: Request) -> None:
        """Browsers send Origin with every form, and the current ones Sec-Fetch-Site. Programs send neither."""
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise OriginRejected("forms of other sites are not accepted")
        own_origins = [self._own_origin]
        if self._is_loopback:
            # `check_origin` has already made sure that the host is a loopback name.
            own_origins.append(f"http://{request.headers.get('host', '')}".lower())
        if request.headers.get("origin", self._own_origin).lower() not in own_origins:
            raise OriginRejected("forms of other origins are not accepted")


def _shown_notice(notice: browser_sessions.Notice) -> dict[str, Any]:
    """Returns a notice for the template, which has the words."""
    time = format_time_seconds(notice.created_at)
    return {
        "kind": notice.kind,
        "name": browser_name(notice.name) if notice.kind == "browser" else notice.name,
        "address": notice.address,
        "until": repr(notice.created_at),
        "time": time,
        "words": _("%(date)s at %(time)s UTC", date=time[:10], time=time[11:16]),
    }


async def read_fields(request: Request, max_bytes: int) -> Mapping[str, str]:
    """Returns the fields of a form, whoever sent it."""
    content_type = request.headers.get("content-type", "")
    if media_type_of(content_type) != URLENCODED:
        raise UnsupportedMediaType(content_type, URLENCODED)
    return read_form(_FORM, content_type, await read_body(request, request.headers.get("content-length"), max_bytes))


def client_address(request: Request) -> str:
    return request.client.host if request.client else ""


def client_network(request: Request) -> str:
    """Returns what the limits of an address count."""
    return network_of(client_address(request))


def see_other(location: str) -> Response:
    """Returns a redirect that browsers follow with GET, also after a form."""
    return RedirectResponse(location, 303, {"Cache-Control": "no-store"})


def safe_path(value: str) -> str:
    """Returns `value` if it is a path on this server, else that of the home page.

    Browsers read a backslash as a slash, drop tabs and line breaks, and take two slashes for the start of a host name.
    """
    path = value.partition("?")[0]
    is_path = value.startswith("/") and value.isascii() and value.isprintable() and " " not in value
    is_own = is_path and "//" not in path and "\\" not in value and path.rstrip("/") != SIGN_IN_PATH
    return value if is_own else HOME_PATH


def sign_in_again_path(target: str) -> str:
    """Returns the sign-in page for someone who is signed in, but not since a short time ago."""
    return f"{SIGN_IN_PATH}?again=yes&next={quote(target, safe='/')}"


def second_factor_path(target: str) -> str:
    return f"{SECOND_FACTOR_PATH}?next={quote(target, safe='/')}"


def sign_in_required(request: Request) -> SignInRequired:
    return SignInRequired(f"{SIGN_IN_PATH}?next={quote(_page_path(request), safe='/')}")


def _page_path(request: Request) -> str:
    """Returns the address of the page that was requested, or of the account if a form was sent."""
    # A form is not sent again after sign-in: its token is that of another session.
    query = request.url.query
    return safe_path(request.url.path + (f"?{query}" if query else "")) if request.method == "GET" else ACCOUNT_PATH
