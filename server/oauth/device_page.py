"""The page on which people enter the code of a device (RFC 8628 section 3.3) and decide what it may do."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from auth.browser_sessions import BrowserSession
from auth.oauth.clients import OAuthClient
from auth.oauth.device_codes import DeviceRequest, format_user_code, normalize_user_code
from auth.oauth.grants import GrantRequest
from auth.oauth.metadata import DEVICE_PATH
from auth.oauth.scopes import grantable_scopes
from auth.principal import ADMIN
from config.errors import InvalidParams
from server.console.browser import BrowserGuard, client_address, see_other, sign_in_again_path
from server.console.pages import render_page
from server.oauth.consent import consent_values, read_decision
from server.oauth.services import OAuthServices

_UNKNOWN_CODE = "This code is not valid, or no longer. Check it on your device, or start again there."


class DevicePage:
    def __init__(self, services: OAuthServices, browser: BrowserGuard) -> None:
        self._services = services
        self._browser = browser

    async def show(self, request: Request) -> Response:
        await self._browser.require_session(request)
        return await self._ask_for_code(request, request.query_params.get("user_code", ""))

    async def submit(self, request: Request) -> Response:
        """Handles both forms: the first has the code only, the second also the decision."""
        form = await self._browser.check_form(request)
        session = await self._browser.require_session(request)
        user_code = normalize_user_code(form.get("user_code", ""))
        device = await self._services.device_codes.find(user_code)
        if device is None:
            await self._services.limits.failures.take(client_address(request))
            return await self._ask_for_code(request, form.get("user_code", ""), _UNKNOWN_CODE)
        client = await self._services.find_client(device.client_id)
        scopes = grantable_scopes(device.scopes, session.user.role)
        match form.get("decision"):
            case "allow":
                return await self._allow(request, form, device, client, scopes, session)
            case "deny":
                await self._services.device_codes.deny(user_code)
                return _message("Denied", f"{client.name} gets no access. You can close this page.")
            case _:
                return await self._ask(request, device, client, scopes, session)

    async def _allow(
        self,
        request: Request,
        form: Mapping[str, str],
        device: DeviceRequest,
        client: OAuthClient,
        scopes: frozenset[str],
        session: BrowserSession,
    ) -> Response:
        try:
            decision = read_decision(form, scopes, self._services.sources)
        except InvalidParams as error:
            return await self._ask(request, device, client, scopes, session, error.message)
        if ADMIN in decision.scopes and not self._browser.is_recent(session):
            return see_other(sign_in_again_path(f"{DEVICE_PATH}?user_code={format_user_code(device.user_code)}"))
        grant = GrantRequest(
            user=session.user,
            client_id=client.id,
            client_name=client.name,
            redirect_uri="",
            resource=device.resource,
            scopes=decision.scopes,
            sources=decision.sources,
            auth_method=client.metadata.token_endpoint_auth_method,
        )
        await self._services.device_codes.approve(device.user_code, grant)
        self._services.record("connection.create", grant, request)
        return _message(
            "Connected", f"{client.name} now has access. You can close this page and go back to the device."
        )

    async def _ask_for_code(self, request: Request, user_code: str, problem: str = "") -> Response:
        shown = format_user_code(normalize_user_code(user_code)) if user_code else ""
        status = 400 if problem else 200
        return await self._browser.render(
            request, "device.html", status=status, action=DEVICE_PATH, user_code=shown, problem=problem
        )

    async def _ask(
        self,
        request: Request,
        device: DeviceRequest,
        client: OAuthClient,
        scopes: frozenset[str],
        session: BrowserSession,
        problem: str = "",
    ) -> Response:
        values = consent_values(client, "", device.resource, scopes, self._services.sources, session)
        shown = format_user_code(device.user_code)
        return await self._browser.render(
            request,
            "consent.html",
            status=400 if problem else 200,
            action=DEVICE_PATH,
            hidden={"user_code": shown},
            device_code=shown,
            problem=problem,
            **values,
        )


def _message(title: str, sentence: str) -> Response:
    return render_page("message.html", title=title, sentences=[sentence])
