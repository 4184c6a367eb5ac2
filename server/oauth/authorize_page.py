"""The authorization endpoint: people sign in, see who asks for what, and allow or deny it."""

# This package exists because hosted clients such as claude.ai and ChatGPT connect by OAuth and by nothing else.
# Read first: `endpoints.py` (all addresses, and what programs call), then `authorize_page.py` (what people see).
# `code_request.py` validates authorization requests and builds what the others share. Clients,
# grants, codes and tokens are stored by `auth/oauth`, which knows nothing of HTTP.

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from auth.browser_sessions import BrowserSession
from auth.context import ADMIN, READ, SCOPES, WRITE
from auth.oauth import grants
from auth.oauth.clients import AUTHORIZE_PATH, DEVICE_PATH, OAuthClient, grantable_scopes
from auth.oauth.grants import OAuthError, RequestRejected, describe_target, is_loopback_uri, is_private_use
from auth.oauth.tokens import format_user_code, normalize_user_code
from config.errors import InvalidParams
from server.console.browser import BrowserGuard, client_network, safe_path, see_other, sign_in_again_path
from server.console.pages import N_, _, render_page
from server.oauth import code_request
from server.oauth.code_request import AuthorizationCodeRequest, OAuthServices, Parameters, ReturnAddress
from server.operations.operation import is_recent

SCOPE_WORDS = {
    READ: N_("search and read your library"),
    WRITE: N_(
        "add, change and delete items in your library; follow web pages, and files of this server in folders that its "
        "operator opened to you, and write notes to them"
    ),
    ADMIN: N_(
        "see the users of this server, their quotas and invitations, its state and followed deployments, and the audit "
        "log of all users; it cannot change users, keys or quotas, and reaches no other files"
    ),
}
# People can leave these out and still allow the rest. Administration has to be chosen.
_OPTIONAL = (WRITE, ADMIN)
_NOT_CHOSEN_AT_FIRST = ADMIN


def _scope_field(scope: str) -> str:
    return f"scope_{scope}"


class _ConsentPage:
    def __init__(self, services: OAuthServices, browser: BrowserGuard) -> None:
        self._services = services
        self._browser = browser

    async def _read_decision(
        self, form: Mapping[str, str], scopes: frozenset[str], session: BrowserSession
    ) -> tuple[frozenset[str], frozenset[str] | None, frozenset[str]]:
        """Returns the scopes, the sources and the handles of libraries of others that were chosen in the form, which
        can only be less than what was asked for, and than what the person has. None means all sources."""
        chosen = frozenset(scope for scope in scopes if scope not in _OPTIONAL or form.get(_scope_field(scope)) == "on")
        if scopes <= set(_OPTIONAL) and len(scopes) == 1:
            chosen = scopes  # a single permission is not optional: deny leaves it out
        sources = frozenset(name for name in self._services.sources if form.get(f"source_{name}") == "on")
        if not chosen or not sources:
            raise InvalidParams("choose at least one permission and one source, or deny the request")
        handles = [one.handle for one in await self._services.sharing.libraries_of(session.user.id)]
        libraries = frozenset(handle for handle in handles if form.get(f"library_{handle}") == "on")
        return chosen, None if sources == set(self._services.sources) else sources, libraries

    async def _ask(
        self,
        request: Request,
        session: BrowserSession,
        client: OAuthClient,
        resource: grants.TokenResource,
        scopes: frozenset[str],
        *,
        redirect_uri: str = "",
        problem: str = "",
        **values: Any,
    ) -> Response:
        """Shows what a client asks for."""
        identity = {
            "document": _("Its name is published by %(host)s, which we have checked.", host=urlsplit(client.id).netloc),
            "manual": _("The operator of this server added this application."),
            "dynamic": _(
                "The application chose this name itself, and it has not been verified. Allow access only if you have "
                "just started to connect it yourself."
            ),
        }
        is_local = is_loopback_uri(redirect_uri) or is_private_use(redirect_uri)
        optional = [scope for scope in SCOPES if scope in scopes and scope in _OPTIONAL and len(scopes) > 1]
        return await self._browser.render(
            request,
            "consent.html",
            status=400 if problem else 200,
            # Browsers apply `form-action` to the redirects that follow a form, too.
            form_action=f"'self' {grants.form_target(redirect_uri)}" if redirect_uri else "'self'",
            problem=problem,
            client_name=client.name,
            identity=identity[client.kind],
            is_verified=client.kind != "dynamic",
            # Anyone can choose a name, but the answer goes to this place only.
            redirect_target=describe_target(redirect_uri) if redirect_uri else "",
            is_local=bool(redirect_uri) and is_local,
            user_name=session.user.name,
            required_scopes=[SCOPE_WORDS[scope] for scope in SCOPES if scope in scopes and scope not in optional],
            optional_scopes=[
                {"field": _scope_field(scope), "words": SCOPE_WORDS[scope], "is_checked": scope != _NOT_CHOSEN_AT_FIRST}
                for scope in optional
            ],
            profile=resource.profile,
            sources=self._services.sources,
            libraries=await self._services.sharing.libraries_of(session.user.id),
            **values,
        )


class AuthorizePage(_ConsentPage):
    async def show(self, request: Request) -> Response:
        """Leads back to the client at once if the person has allowed the same request before; asks otherwise."""
        signed_in = await self._browser.session_of(request)
        await self._services.request_limit.take(("owner", signed_in.user.id) if signed_in else client_network(request))
        query = request.scope["query_string"].decode("latin-1")
        parameters = _parse(query)
        # The order matters: who asks, where the answer may go, who is signed in, and only then what is asked for. Until
        # the redirect URI is known to be the client's, every error is a page of this server (RFC 6749 section 4.1.2.1).
        if self._services.is_document(parameters.get("client_id")):
            await self._browser.require_session(request)  # strangers cannot make this server fetch documents
        address = await self._return_address(parameters)
        session = await self._browser.require_session(request)  # leads to the sign-in page, and back here
        try:
            authorization = self._read(address, parameters, session)
        except OAuthError as error:
            # Leads back to the client, unless anyone can have registered it: then a link of this server with an invalid
            # request would lead to any site (RFC 9700 section 4.11.2). A page says what is wrong instead.
            location = address.failure(error)
            if address.client.kind == "manual" or is_loopback_uri(address.redirect_uri):
                return self._lead_back(request, address, location)
            return render_page(
                "refused-request.html",
                status=error.status,
                client_name=address.client.name,
                problem=error.message,
                location=location,
                target=describe_target(address.redirect_uri),
            )
        if code := await self._code_of_remembered(request, authorization, session):
            return self._lead_back(request, address, address.success(code))
        return await self._ask_for(request, authorization, session, query)

    async def decide(self, request: Request) -> Response:
        """The form carries the whole request, which is validated again."""
        form = await self._browser.check_form(request)
        session = await self._browser.require_session(request)
        query = form.get("request", "")
        parameters = _parse(query)
        address = await self._return_address(parameters)
        try:
            authorization = self._read(address, parameters, session)
            if form.get("decision") != "allow":
                raise OAuthError("access_denied", "the request was denied")
        except OAuthError as error:
            return see_other(address.failure(error))
        try:
            scopes, sources, libraries = await self._read_decision(form, authorization.scopes, session)
        except InvalidParams as error:
            return await self._ask_for(request, authorization, session, query, error.message)
        # Someone who finds an open browser must not be able to give an application access to all users.
        if ADMIN in scopes and not is_recent(session.created_at):
            return see_other(sign_in_again_path(safe_path(f"{request.url.path}?{query}")))
        grant = _grant(
            session, address.client, address.redirect_uri, authorization.resource, scopes, sources, libraries
        )
        code = await self._services.grants.approve(grant, authorization.code_challenge)
        self._services.record("connection.create", grant, request)
        return see_other(address.success(code))

    async def _return_address(self, parameters: Parameters) -> ReturnAddress:
        client_id = parameters.get("client_id")
        if not client_id:
            raise RequestRejected("the application did not say who it is (client_id is missing)")
        client = await self._services.find_client(client_id)
        return code_request.find_return_address(client, parameters, self._services.settings.base_url)

    def _read(
        self, address: ReturnAddress, parameters: Parameters, session: BrowserSession
    ) -> AuthorizationCodeRequest:
        """Returns the request with the scopes that this person can grant."""
        request = code_request.read_code_request(address, parameters, self._services.resources)
        return replace(request, scopes=grantable_scopes(request.scopes, session.user.role))

    async def _code_of_remembered(
        self, request: Request, authorization: AuthorizationCodeRequest, session: BrowserSession
    ) -> str | None:
        """Returns a code for what the person allowed before, or None if there is no such decision."""
        if not authorization.can_be_remembered:
            return None
        address = authorization.address
        wanted = _grant(
            session, address.client, address.redirect_uri, authorization.resource, authorization.scopes, None
        )
        # The last grant that covers the request, unless the person has ended a connection of this client since. It may
        # have fewer sources and libraries than there are, which is kept.
        earlier = await self._services.grants.find_remembered(wanted)
        if earlier is None:
            return None
        grant = replace(wanted, sources=earlier.sources, libraries=earlier.libraries)
        code = await self._services.grants.approve(grant, authorization.code_challenge)
        self._services.record("connection.create", grant, request)
        return code

    async def _ask_for(
        self,
        request: Request,
        authorization: AuthorizationCodeRequest,
        session: BrowserSession,
        query: str,
        problem: str = "",
    ) -> Response:
        address = authorization.address
        return await self._ask(
            request,
            session,
            address.client,
            authorization.resource,
            authorization.scopes,
            redirect_uri=address.redirect_uri,
            problem=problem,
            action=AUTHORIZE_PATH,
            hidden={"request": query},
            device_code="",
        )

    def _lead_back(self, request: Request, address: ReturnAddress, location: str) -> Response:
        """Redirects to the client. After the sign-in form of this server, a page does it instead: browsers apply the
        `form-action` of the sign-in page to all redirects that follow."""
        if request.headers.get("sec-fetch-site") != "same-origin":
            return see_other(location)
        return render_page("continue.html", client_name=address.client.name, location=location)


def _parse(query: str) -> Parameters:
    try:
        return code_request.parse_parameters(query)
    except OAuthError as error:
        raise RequestRejected(error.message) from error


# -- device page -------------------------------------------------------------------------------------------------------
# The page on which people enter the code of a device (RFC 8628 section 3.3) and decide what it may do.

_UNKNOWN_CODE = N_("This code is not valid, or no longer. Check it on your device, or start again there.")


class DevicePage(_ConsentPage):
    async def show(self, request: Request) -> Response:
        await self._browser.require_session(request)
        # A link may contain the code (RFC 8628 section 3.3.1). It only fills in the form: the person has to compare the
        # code with the one on the device.
        return await self._ask_for_code(request, request.query_params.get("user_code", ""))

    async def submit(self, request: Request) -> Response:
        """Handles both forms: the first has the code only, the second also the decision."""
        form = await self._browser.check_form(request)
        session = await self._browser.require_session(request)
        user_code = normalize_user_code(form.get("user_code", ""))
        device = await self._services.device_codes.find(user_code)
        if device is None:
            # User codes are short, so that guesses count like wrong passwords (RFC 8628 section 5.1).
            await self._services.failure_limit.take(client_network(request))
            return await self._ask_for_code(request, form.get("user_code", ""), _(_UNKNOWN_CODE))
        client = await self._services.find_client(device.client_id)
        scopes = grantable_scopes(device.scopes, session.user.role)
        shown = format_user_code(device.user_code)
        decision, problem = form.get("decision"), ""
        if decision == "deny":
            await self._services.device_codes.deny(user_code)
            return _message(_("Denied"), _("%(name)s gets no access. You can close this page.", name=client.name))
        if decision == "allow":
            try:
                chosen, sources, libraries = await self._read_decision(form, scopes, session)
            except InvalidParams as error:
                problem = error.message
            else:
                if ADMIN in chosen and not is_recent(session.created_at):
                    return see_other(sign_in_again_path(f"{DEVICE_PATH}?user_code={shown}"))
                grant = _grant(session, client, "", device.resource, chosen, sources, libraries)
                await self._services.device_codes.approve(device.user_code, grant)
                self._services.record("connection.create", grant, request)
                return _message(
                    _("Connected"),
                    _("%(name)s now has access. You can close this page and go back to the device.", name=client.name),
                )
        return await self._ask(
            request,
            session,
            client,
            device.resource,
            scopes,
            problem=problem,
            action=DEVICE_PATH,
            hidden={"user_code": shown},
            device_code=shown,
        )

    async def _ask_for_code(self, request: Request, user_code: str, problem: str = "") -> Response:
        shown = format_user_code(normalize_user_code(user_code)) if user_code else ""
        status = 400 if problem else 200
        return await self._browser.render(
            request, "device.html", status=status, action=DEVICE_PATH, user_code=shown, problem=problem
        )


def _grant(
    session: BrowserSession,
    client: OAuthClient,
    redirect_uri: str,
    resource: grants.TokenResource,
    scopes: frozenset[str],
    sources: frozenset[str] | None,
    libraries: frozenset[str] = frozenset(),
) -> grants.GrantRequest:
    return grants.GrantRequest(
        user=session.user,
        client_id=client.id,
        client_name=client.name,
        redirect_uri=redirect_uri,
        resource=resource,
        scopes=scopes,
        sources=sources,
        libraries=libraries,
        auth_method=client.metadata.token_endpoint_auth_method,
    )


def _message(title: str, sentence: str) -> Response:
    return render_page("message.html", title=title, sentences=[sentence])
