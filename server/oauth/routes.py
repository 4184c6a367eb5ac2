"""The routes of the authorization server."""

from starlette.routing import BaseRoute, Route

from auth.oauth.metadata import (
    AUTHORIZE_PATH,
    DEVICE_AUTHORIZATION_PATH,
    DEVICE_PATH,
    METADATA_PATH,
    REGISTRATION_PATH,
    REVOCATION_PATH,
    TOKEN_PATH,
)
from server.console.browser import BrowserGuard
from server.console.page_handler import PageFunction, PageHandler
from server.oauth.authorize_page import AuthorizePage, DevicePage
from server.oauth.code_request import EndpointFunction, PublicEndpoint
from server.oauth.endpoints import OAuthEndpoints
from server.oauth.services import build_oauth_services
from server.runtime import Runtime


def oauth_routes(runtime: Runtime, browser: BrowserGuard) -> list[BaseRoute]:
    if not runtime.settings.has_oauth_server:
        return []
    services = build_oauth_services(runtime)
    endpoints = OAuthEndpoints(services)
    authorize, device = AuthorizePage(services, browser), DevicePage(services, browser)

    def endpoint(path: str, method: str, function: EndpointFunction) -> Route:
        return Route(path, PublicEndpoint(method, function))

    def page(path: str, get: PageFunction, post: PageFunction) -> Route:
        return Route(path, PageHandler(runtime.settings, browser, get=get, post=post))

    return [
        endpoint(METADATA_PATH, "GET", endpoints.metadata),
        # Some clients append the path of the MCP address, or that of a public URL with a path (RFC 8414 section 3.1).
        # `/.well-known/openid-configuration` does not exist: this server is no OpenID provider, and clients that try
        # it first go on to this one.
        endpoint(METADATA_PATH + "/{path:path}", "GET", endpoints.metadata),
        endpoint(REGISTRATION_PATH, "POST", endpoints.register),
        endpoint(TOKEN_PATH, "POST", endpoints.token),
        endpoint(REVOCATION_PATH, "POST", endpoints.revoke),
        endpoint(DEVICE_AUTHORIZATION_PATH, "POST", endpoints.device_authorization),
        page(AUTHORIZE_PATH, authorize.show, authorize.decide),
        page(DEVICE_PATH, device.show, device.submit),
    ]
