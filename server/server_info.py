"""The tool `server_info`: facts that help a caller to plan its calls. It reads no user data."""

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
    request_bytes: Annotated[int, Meta(description="Maximum size of a request body or frame, in bytes.")]
    call_ms: Annotated[int, Meta(description="Maximum duration of a call, in milliseconds.")]
    calls_per_minute: Annotated[float, Meta(description="Calls per user and minute; 0 means no limit.")]
    tool_calls_per_minute: Annotated[float, Meta(description="Calls per user, tool and minute; 0 means no limit.")]
    calls_in_flight: Annotated[int, Meta(description="Concurrent calls on one WebSocket or stdio connection.")]


class ServerInfo(Struct, frozen=True):
    name: str
    version: str
    user: Annotated[str, Meta(description="The user name of the caller.")]
    scopes: Annotated[list[str], Meta(description="The scopes of the caller's credential.")]
    protocol_version: Annotated[str, Meta(description="The MCP revision of this call.")]
    sources: Annotated[list[str], Meta(description="The sources of the user's library.")]
    limits: ServerLimits


class ServerInfoTool:
    def __init__(self, settings: Settings, sources: Sequence[Source]) -> None:
        self._sources = [source.name for source in sources]
        self._limits = ServerLimits(
            request_bytes=settings.body_max_bytes,
            call_ms=settings.call_deadline_ms,
            calls_per_minute=settings.rate_user_per_minute,
            tool_calls_per_minute=settings.rate_tool_per_minute,
            calls_in_flight=settings.connection_in_flight_max,
        )

    def as_tool(self) -> Tool:
        return Tool(
            name="server_info",
            title="Server information",
            description=(
                "Returns the server's version, your user name and scopes, the sources you can search, and the limits "
                "that apply to your calls. Takes no arguments. Example: {}"
            ),
            input=ServerInfoInput,
            output=ServerInfo,
            handler=self.server_info,
        )

    async def server_info(self, call: Call, args: ServerInfoInput) -> ServerInfo:
        return ServerInfo(
            name="florilegium",
            version=VERSION,
            user=call.context.principal.user_name,
            scopes=sorted(call.context.scopes),
            protocol_version=call.version,
            sources=self._sources,
            limits=self._limits,
        )
