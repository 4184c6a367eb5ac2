"""The pages on the way to an OpenID Connect provider and back."""

from starlette.requests import Request
from starlette.responses import Response

from auth.openid.errors import OpenIdFailed
from auth.openid.service import OpenIdSignIn
from server.console.browser import BrowserGuard, safe_path, see_other


class OpenIdPages:
    def __init__(self, browser: BrowserGuard, openid: OpenIdSignIn) -> None:
        self._browser = browser
        self._openid = openid

    async def start(self, request: Request) -> Response:
        """Leads to the provider. It changes nothing here, so that it can be a link."""
        secret, target = self._browser.form_secret(request), safe_path(request.query_params.get("next", ""))
        location = await self._openid.start(request.path_params["provider"], secret, target)
        return self._browser.with_form_secret(request, see_other(location), secret)

    async def complete(self, request: Request) -> Response:
        provider, secret = request.path_params["provider"], self._browser.form_secret(request)
        try:
            user, target = await self._openid.complete(provider, secret, dict(request.query_params))
        except OpenIdFailed as error:
            # Not what anyone can cause with a forged address: that would fill the log.
            if error.subject:
                detail = f"openid {provider}"
                self._browser.record(request, "sign_in.failed", error.user_id, target=error.subject, detail=detail)
            raise
        return await self._browser.sign_in(request, user, safe_path(target), method=f"openid {provider}")
