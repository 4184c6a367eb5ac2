"""The authorization endpoint: people sign in, see who asks for what, and allow or deny it."""

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from auth.browser_sessions import BrowserSession
from auth.oauth.errors import OAuthError, RequestRejected
from auth.oauth.grants import GrantRequest
from auth.oauth.metadata import AUTHORIZE_PATH
from auth.oauth.redirects import describe_target, form_target, is_loopback_uri
from auth.oauth.scopes import grantable_scopes
from auth.principal import ADMIN
from config.errors import InvalidParams
from server.console.browser import BrowserGuard, client_address, safe_path, see_other, sign_in_again_path
from server.console.pages import render_page
from server.oauth.code_request import (
    AuthorizationCodeRequest,
    ReturnAddress,
    find_return_address,
    read_code_request,
)
from server.oauth.consent import consent_values, read_decision
from server.oauth.parameters import Parameters, parse_parameters
from server.oauth.services import OAuthServices


class AuthorizePage:
    def __init__(self, services: OAuthServices, browser: BrowserGuard) -> None:
        self._services = services
        self._browser = browser

    async def show(self, request: Request) -> Response:
        """Leads back to the client at once if the person has allowed the same request before; asks otherwise."""
        await self._services.limits.requests.take(client_address(request))
        query = request.scope["query_string"].decode("latin-1")
        parameters = _parse(query)
        if self._services.is_document(parameters.get("client_id")):
            await self._browser.require_session(request)  # strangers cannot make this server fetch documents
        address = await self._return_address(parameters)
        session = await self._browser.require_session(request)
        try:
            authorization = self._read(address, parameters, session)
        except OAuthError as error:
            return self._refuse(request, address, error)
        if code := await self._code_of_remembered(request, authorization, session):
            return self._lead_back(request, address, address.success(code))
        return await self._ask(request, authorization, session, query)

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
            decision = read_decision(form, authorization.scopes, self._services.sources)
        except InvalidParams as error:
            return await self._ask(request, authorization, session, query, problem=error.message)
        if ADMIN in decision.scopes and not self._browser.is_recent(session):
            return see_other(sign_in_again_path(safe_path(f"{request.url.path}?{query}")))
        grant = GrantRequest(
            user=session.user,
            client_id=address.client.id,
            client_name=address.client.name,
            redirect_uri=address.redirect_uri,
            resource=authorization.resource,
            scopes=decision.scopes,
            sources=decision.sources,
            auth_method=address.client.metadata.token_endpoint_auth_method,
        )
        code = await self._services.grants.approve(grant, authorization.code_challenge)
        self._services.record("connection.create", grant, request)
        return see_other(address.success(code))

    async def _return_address(self, parameters: Parameters) -> ReturnAddress:
        client_id = parameters.get("client_id")
        if not client_id:
            raise RequestRejected("the application did not say who it is (client_id is missing)")
        client = await self._services.find_client(client_id)
        return find_return_address(client, parameters, self._services.settings.base_url)

    def _read(
        self, address: ReturnAddress, parameters: Parameters, session: BrowserSession
    ) -> AuthorizationCodeRequest:
        """Returns the request with the scopes that this person can grant."""
        request = read_code_request(address, parameters, self._services.resources)
        return replace(request, scopes=grantable_scopes(request.scopes, session.user.role))

    async def _code_of_remembered(
        self, request: Request, authorization: AuthorizationCodeRequest, session: BrowserSession
    ) -> str | None:
        """Returns a code for what the person allowed before, or None if there is no such decision."""
        if not authorization.can_be_remembered:
            return None
        client = authorization.address.client
        wanted = GrantRequest(
            user=session.user,
            client_id=client.id,
            client_name=client.name,
            redirect_uri=authorization.address.redirect_uri,
            resource=authorization.resource,
            scopes=authorization.scopes,
            auth_method=client.metadata.token_endpoint_auth_method,
        )
        earlier = await self._services.grants.find_remembered(wanted)
        if earlier is None:
            return None
        grant = replace(wanted, sources=earlier.sources)
        code = await self._services.grants.approve(grant, authorization.code_challenge)
        self._services.record("connection.create", grant, request)
        return code

    async def _ask(
        self,
        request: Request,
        authorization: AuthorizationCodeRequest,
        session: BrowserSession,
        query: str,
        problem: str = "",
    ) -> Response:
        address = authorization.address
        values = consent_values(
            address.client,
            address.redirect_uri,
            authorization.resource,
            authorization.scopes,
            self._services.sources,
            session,
        )
        return await self._browser.render(
            request,
            "consent.html",
            status=400 if problem else 200,
            form_action=f"'self' {form_target(address.redirect_uri)}",
            action=AUTHORIZE_PATH,
            hidden={"request": query},
            device_code="",
            problem=problem,
            **values,
        )

    def _refuse(self, request: Request, address: ReturnAddress, error: OAuthError) -> Response:
        """Leads back to the client, unless anyone can have registered it: then a link of this server with an invalid
        request would lead to any site (RFC 9700 section 4.11.2). A page says what is wrong instead."""
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

    def _lead_back(self, request: Request, address: ReturnAddress, location: str) -> Response:
        """Redirects to the client. After the sign-in form of this server, a page does it instead: browsers apply the
        `form-action` of the sign-in page to all redirects that follow."""
        if request.headers.get("sec-fetch-site") != "same-origin":
            return see_other(location)
        return render_page("continue.html", client_name=address.client.name, location=location)


def _parse(query: str) -> Parameters:
    try:
        return parse_parameters(query)
    except OAuthError as error:
        raise RequestRejected(error.message) from error
