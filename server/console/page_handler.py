"""Serves one web page: its handlers by method, and errors as pages."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

from msgspec import Struct, structs, to_builtins
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from auth.authenticator import basic_to_bearer
from auth.browser_sessions import browser_principal
from auth.context import ADMIN, WRITE, RequestContext, SessionId
from config.errors import FlorilegiumError, InvalidParams
from config.settings import Settings
from server.admission import IncomingRequest
from server.console.browser import (
    BrowserGuard,
    SignInRequired,
    safe_path,
    see_other,
    sign_in_again_path,
    sign_in_required,
)
from server.console.pages import N_, _, find_text, render_page, use_preferences
from server.error_responses import error_headers
from server.operations import operations_of
from server.operations.operation import FormBinding, Operation, SignInNeeded
from server.protocol.schema import read_arguments
from server.rest.handler import check_method, rest_context, run_operation
from server.runtime import Runtime

PageFunction = Callable[[Request], Awaitable[Response]]
_TITLES = {
    403: N_("Not allowed"),
    404: N_("Not found"),
    409: N_("Not possible"),
    429: N_("Try again later"),
    503: N_("Try again later"),
}


class PageHandler:
    """The ASGI application of one path. Pages that only people use answer errors in HTML, whatever is accepted."""

    def __init__(
        self,
        settings: Settings,
        browser: BrowserGuard,
        *,
        get: PageFunction | None = None,
        post: PageFunction | None = None,
    ) -> None:
        self._settings = settings
        self._browser = browser
        self._functions = {name: function for name, function in (("GET", get), ("POST", post)) if function}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        use_preferences(scope)
        try:
            request = Request(scope, receive)
            self.check_sender(request)
            check_method(request.method, tuple(self._functions))
            response = await self._functions["GET" if request.method == "HEAD" else request.method](request)
        except SignInRequired as error:
            response = see_other(error.location)
        except SignInNeeded as error:
            # After a form, the page that it is on: forms post to paths below it.
            page = scope["path"] if scope["method"] == "GET" else "/" + scope["path"].split("/")[1]
            response = error_page(self._settings, error, sign_in_again_path(safe_path(page)), _("Sign in again"))
        except FlorilegiumError as error:
            response = error_page(self._settings, error)
        await response(scope, receive, send)

    def check_sender(self, request: Request) -> None:
        """Raises for requests that pages of other sites cause."""
        self._browser.check_origin(request)


def error_page(settings: Settings, error: FlorilegiumError, link: str = "", link_text: str = "") -> Response:
    title = _(_TITLES.get(error.status, N_("Something went wrong") if error.status >= 500 else N_("Not accepted")))
    message = find_text(error.message)
    sentence = message[:1].upper() + message[1:] + "."
    shown: dict[str, Any] = {"title": title, "sentences": [sentence], "link": link, "link_text": link_text}
    response = render_page("message.html", status=error.status, **shown)
    for name, value in error_headers(settings, error).items():
        response.headers[name] = value
    return response


# -- viewer ------------------------------------------------------------------------------------------------------------
# The person who looks at a page, and the REST operations that the page is made of.
#
# A server for one user needs no sign-in. Elsewhere the person has signed in with a browser, or sends an API key as a
# Basic password, which permalinks have always accepted.

# The session state of searches on pages. Each user has their own, and a browser its own (see `BrowserSession.id`).
_LOCAL_SESSION = SessionId("console")
# The kinds of principals that are people in front of a browser.
_PEOPLE = frozenset(("browser", "local"))


class Viewer(Struct, frozen=True, kw_only=True):
    """Only people get forms to write: they are signed in, or the server is theirs alone. An API key is for programs,
    which use REST."""

    request: Request
    context: RequestContext
    name: str  # of a person who is signed in, and empty for others

    @property
    def is_person(self) -> bool:
        return self.context.principal.kind in _PEOPLE

    @property
    def can_write(self) -> bool:
        return self.is_person and self.context.principal.has_scope(WRITE)

    @property
    def is_admin(self) -> bool:
        return self.is_person and self.context.principal.has_scope(ADMIN)


class LibraryPage:
    """The base class of pages that show a person's library."""

    # What was done just now, by the word for it in the address. A form leads to a page with such an address, so that
    # reloading the page does not send the form again.
    done_sentences: ClassVar[Mapping[str, str]] = {}

    def __init__(self, runtime: Runtime, browser: BrowserGuard) -> None:
        self._runtime = runtime
        self._browser = browser
        self.settings = runtime.settings
        self._sources = {source.name: source.title for source in runtime.knowledge.sources}

    @property
    def source_titles(self) -> dict[str, str]:
        """The titles of the sources in the language of the page, by name."""
        return {name: find_text(title) for name, title in self._sources.items()}

    async def admit(self, request: Request, operation: Operation) -> Viewer:
        """Admits a request for a page that shows what `operation` returns. Raises SignInRequired if there is no
        session and the client is a browser, which can show the sign-in page."""
        incoming = IncomingRequest.from_scope(request.scope)
        admission, authorization = self._runtime.admission, basic_to_bearer(incoming.headers.authorization())
        session = None
        if authorization is None and self._runtime.settings.is_auth_configured:
            session = await self._browser.session_of(request)
            if session is None and "text/html" in request.headers.get("accept", "").lower():
                raise sign_in_required(request)
        if session is None:
            admitted = await admission.admit_operation(incoming, authorization, operation)
        else:
            admitted = await admission.admit_browser(incoming, browser_principal(session), operation)
        context = rest_context(self._runtime, admitted)
        session_id = SessionId(f"browser:{session.id}") if session is not None else _LOCAL_SESSION
        name = session.user.name if session is not None else ""
        return Viewer(request=request, context=structs.replace(context, session=session_id), name=name)

    async def admit_form(self, request: Request, operation: Operation) -> tuple[Viewer, Mapping[str, str]]:
        """Admits a form that runs `operation`, and returns its fields. The session first: if it has ended, the person
        is asked to sign in again, instead of reading that the form is not valid."""
        viewer = await self.admit(request, operation)
        return viewer, await self._browser.check_form(request)

    async def find_viewer(self, request: Request, operation: Operation) -> Viewer | None:
        """Returns the person who is signed in, or None. For pages that everyone may see."""
        if self._runtime.settings.is_auth_configured and await self._browser.session_of(request) is None:
            return None
        return await self.admit(request, operation)

    async def run(self, viewer: Viewer, operation: Operation, args: Any) -> Any:
        """Runs an operation as a REST request of the viewer would."""
        return await run_operation(self._runtime, operation, viewer.context, args)

    async def render(self, viewer: Viewer, template: str, **values: Any) -> Response:
        done = self.done_sentences.get(viewer.request.query_params.get("done", ""), "")
        done = _(done) if done else ""
        return await self._browser.render(viewer.request, template, **{"viewer": viewer, "done": done, **values})


class PersonalPage(LibraryPage):
    """The base class of pages that change an account or the server. They are for people; programs with an
    API key use REST."""

    async def admit(self, request: Request, operation: Operation) -> Viewer:
        if self._runtime.settings.is_auth_configured:
            await self._browser.require_session(request)
        viewer = await super().admit(request, operation)
        if not viewer.is_person:
            raise sign_in_required(request)
        return viewer


FORMS_PATH = "/forms/"


class FormPages(LibraryPage):
    """Forms of operations that declare one: a field for each value of the input, and what the operation returns."""

    def pages(self) -> dict[str, tuple[PageFunction, PageFunction]]:
        """Returns the functions that show and run the form of each path."""
        return {
            FORMS_PATH + operation.console.path: self._functions(operation, operation.console)
            for operation in operations_of()
            if operation.console is not None
        }

    def _functions(self, operation: Operation, binding: FormBinding) -> tuple[PageFunction, PageFunction]:
        schema = operation.input_schema()
        fields = [
            {"name": name, "type": "text", **declared, "is_required": name in schema.get("required", ())}
            for name, declared in schema.get("properties", {}).items()
        ]

        async def page(viewer: Viewer, values: Mapping[str, str], **shown: Any) -> Response:
            return await self.render(
                viewer,
                "form.html",
                **{"output": None, **shown},
                title=operation.summary,
                description=operation.description,
                button=binding.button,
                fields=fields,
                values=values,
                section="",
            )

        async def show(request: Request) -> Response:
            return await page(await self.admit(request, operation), {})

        async def run(request: Request) -> Response:
            viewer, values = await self.admit_form(request, operation)
            given: dict[str, Any] = {}
            for field in fields:
                text = values.get(field["name"], "").strip()
                match field["type"]:
                    case "boolean":
                        given[field["name"]] = text == "on"
                    case "array":
                        given[field["name"]] = [part.strip() for part in text.split(",") if part.strip()]
                    case _ if text:
                        given[field["name"]] = text
            try:
                output = await self.run(viewer, operation, read_arguments(given, operation.input))
            except InvalidParams as error:
                return await page(viewer, values, error=error)
            return await page(viewer, values, output=to_builtins(output))

        return show, run
