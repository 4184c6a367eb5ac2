"""The routes of REST, pages, sign-in and the APIs of other systems: all but MCP and the endpoints for operators.

`server.app` imports this module at the first request for one of them, which saves memory in a server that only
serves MCP.
"""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from config.errors import NotFound
from config.settings import Settings
from server.compat.tldw.endpoints import tldw_routes
from server.console.pages import use_preferences
from server.console.routes import console_routes, library_page_routes
from server.error_responses import json_error
from server.http_services import build_http_services
from server.metrics import Metrics
from server.oauth.code_request import PublicEndpoint
from server.oauth.endpoints import oauth_routes
from server.registry_entry import ICON_PATH
from server.rest.handler import html_error
from server.rest.routes import rest_routes
from server.runtime import Runtime
from server.service_endpoints import ServiceEndpoints


def web_routes(
    runtime: Runtime, metrics: Metrics, service: ServiceEndpoints, added: Sequence[BaseRoute]
) -> list[BaseRoute]:
    """`added` are the routes of other distributions."""
    services = build_http_services(runtime, metrics)
    resource_metadata = PublicEndpoint("GET", service.resource_metadata)
    return [
        Route("/.well-known/oauth-protected-resource", resource_metadata),
        Route("/.well-known/oauth-protected-resource/mcp", resource_metadata),
        # RFC 9728 section 3.1: a client of `/mcp/research` looks for the metadata below that path.
        Route("/.well-known/oauth-protected-resource/mcp/sse", resource_metadata),
        Route("/.well-known/oauth-protected-resource/mcp/{profile}", resource_metadata),
        Route("/.well-known/oauth-protected-resource/mcp/{profile}/sse", resource_metadata),
        Route("/v0.1/servers", PublicEndpoint("GET", service.registry_list)),
        # A name has a slash, which clients encode.
        Route("/v0.1/servers/{name:path}/versions", PublicEndpoint("GET", service.registry_server)),
        Route("/v0.1/servers/{name:path}/versions/{version}", PublicEndpoint("GET", service.registry_server)),
        Route(ICON_PATH, PublicEndpoint("GET", service.icon)),
        *tldw_routes(runtime, metrics),
        *oauth_routes(runtime, services),
        *console_routes(runtime, services),
        *library_page_routes(runtime, services),
        *rest_routes(runtime, services),
        # Those above come first if both have a path.
        *added,
    ]


def unknown_path(settings: Settings, request: Request) -> Response:
    missing = NotFound("path", request.scope["path"][:200])
    # Browsers ask for HTML. Programs get JSON.
    if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        use_preferences(request.scope)
        return html_error(settings, missing)
    return json_error(settings, missing)
