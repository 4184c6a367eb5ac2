"""The tool `server_info`: what a caller may want to know before it plans its calls. Reads nothing of anybody's."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from config.settings import Settings
from server.protocol.call import Call
from server.protocol.catalog import Tool
from server.version import VERSION
from sources.source import Source


class ServerInfoInput(Struct, forbid_unknown_fields=True):
    """No arguments."""


class ServerLimits(Struct, frozen=True):
    request_bytes: Annotated[int, Meta(description="Largest request body or frame, in bytes.")]
    call_ms: Annotated[int, Meta(description="Longest a call may run, in milliseconds.")]
    calls_per_minute: Annotated[float, Meta(description="Calls of one user in a minute; 0 means no limit.")]
    tool_calls_per_minute: Annotated[float, Meta(description="Calls of one user to one tool in a minute; 0: none.")]
    calls_in_flight: Annotated[int, Meta(description="Calls at once on one WebSocket or stdio connection.")]


class ServerInfo(Struct, frozen=True):
    name: str
    version: str
    user: Annotated[str, Meta(description="The name under which the server knows the caller.")]
    scopes: Annotated[list[str], Meta(description="What the caller's credential allows.")]
    protocol_version: Annotated[str, Meta(description="The MCP revision of this call.")]
    sources: Annotated[list[str], Meta(description="Sources of the caller's library that can be searched.")]
    limits: ServerLimits


def server_info(settings: Settings, sources: Sequence[Source]) -> Tool:
    limits = ServerLimits(
        request_bytes=settings.body_max_bytes,
        call_ms=settings.call_deadline_ms,
        calls_per_minute=settings.rate_user_per_minute,
        tool_calls_per_minute=settings.rate_tool_per_minute,
        calls_in_flight=settings.connection_in_flight_max,
    )

    async def run(call: Call, given: ServerInfoInput) -> ServerInfo:
        return ServerInfo(
            name="florilegium",
            version=VERSION,
            user=call.context.principal.user_name,
            scopes=sorted(call.context.scopes),
            protocol_version=call.version,
            sources=[source.name for source in sources],
            limits=limits,
        )

    return Tool(
        name="server_info",
        title="Server information",
        description=(
            "Tells the server's version, who you are to it, which sources of your library can be searched, and the "
            "limits that apply to your calls. Takes no arguments. Example: {}"
        ),
        input=ServerInfoInput,
        output=ServerInfo,
        handler=run,
    )
