"""A library's readers without a server around them: their libraries, their sources, and the tools as a client calls
them. Credentials, doors and rate limits are not here; `bench.protocol` measures those."""

import base64
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from auth.context import RequestContext, build_context
from auth.principal import SCOPES, ClientId, Principal
from config.paths import DataRoot, UserId
from config.settings import Settings
from server.lifespan import open_runtime
from server.protocol.call import NullPeer
from server.protocol.dispatcher import Dispatcher
from server.protocol.messages import Request
from server.protocol.request_meta import CAPABILITIES_KEY, VERSION_KEY, modern_call, read_request_meta
from server.protocol.versions import MODERN_VERSIONS
from sources.registry import load_sources
from sources.source import Source
from sources.storage.contract import Libraries

_META = {VERSION_KEY: MODERN_VERSIONS[0], CAPABILITIES_KEY: {}}


class ToolFailed(Exception):
    """A tool answered with an error; a figure made from such answers would mean nothing."""


class Desk(Struct, frozen=True):
    """Every reader's way in."""

    settings: Settings
    data_root: DataRoot
    libraries: Libraries
    sources: Mapping[str, Source]
    dispatcher: Dispatcher

    def reader(self, name: str) -> RequestContext:
        """The user of this name; the same name leads to the same library in every run."""
        user_id = user_id_of(name)
        principal = Principal(user_id, name, ClientId("bench"), frozenset(SCOPES), "local", "bench")
        return build_context(principal, self.data_root, "bench")

    async def call(self, reader: RequestContext, tool: str, **arguments: Any) -> Any:
        """The structured answer of a tool, as it would go over the wire."""
        request = Request(1, "tools/call", {"name": tool, "arguments": arguments, "_meta": _META})
        call = modern_call(read_request_meta(request.params), request, reader, NullPeer())
        answer = msgspec.json.decode(msgspec.json.encode(await self.dispatcher.dispatch(call, request)))
        if answer.get("isError"):
            raise ToolFailed(f"{tool} {arguments}: {answer['content']}")
        return answer["structuredContent"]


def user_id_of(name: str) -> UserId:
    digest = hashlib.sha256(name.encode()).digest()[:16]
    return UserId("u_" + base64.b32encode(digest).decode().rstrip("=").lower())


@asynccontextmanager
async def open_desk(root: Path, **changes: Any) -> AsyncIterator[Desk]:
    """The product's own parts with its default settings, but no rate limit: one reader asks for many here."""
    settings = Settings(data_dir=str(root), rate_user_per_minute=0, rate_tool_per_minute=0, **changes)
    sources = {source.name: source for source in load_sources(settings)}
    async with open_runtime(settings) as runtime:
        yield Desk(settings, runtime.data_root, runtime.libraries, sources, runtime.dispatcher)
