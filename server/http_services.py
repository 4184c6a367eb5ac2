"""The services that only HTTP needs: the API of AgentKit and the guard of the web pages.

They are not part of the runtime because they import Starlette, which stdio must not load.
"""

from msgspec import Struct

from server.compat.agentkit.services import AgentKit, build_agentkit
from server.console.browser import BrowserGuard
from server.runtime import Runtime


class HttpServices(Struct, frozen=True, kw_only=True):
    agentkit: AgentKit
    browser: BrowserGuard


def build_http_services(runtime: Runtime) -> HttpServices:
    knowledge = runtime.knowledge
    return HttpServices(
        agentkit=build_agentkit(
            runtime.settings, runtime.libraries, knowledge.aggregator, knowledge.retriever, runtime.open_streams
        ),
        browser=BrowserGuard(runtime.settings, runtime.browser_sessions),
    )
