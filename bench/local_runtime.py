"""A server runtime in this process, without transports, credentials and rate limits; see `bench.protocol` for those."""

import base64
import hashlib
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from auth.context import SCOPES, ClientId, Principal, RequestContext, build_context
from config.paths import DataRoot, UserId
from config.settings import Settings
from server.lifespan import open_runtime
from server.protocol.call import CAPABILITIES_KEY, VERSION_KEY, NullPeer, modern_call, read_request_meta
from server.protocol.dispatcher import Dispatcher
from server.protocol.messages import MODERN_VERSIONS, Request
from sources.registry import load_sources
from sources.semantic.named_models import NAMED_MODELS, find_files
from sources.source import Source
from sources.storage.contract import Libraries
from tests.build_settings import build_settings

# The value of `semantic_model` with which searches compare words only.
WORDS_ONLY = "off"
_DEADLINE_MS = 60_000
_META = {VERSION_KEY: MODERN_VERSIONS[0], CAPABILITIES_KEY: {}}


class ToolError(Exception):
    """A tool returned an error, which would make the measurement meaningless."""


# A library is created only for a user that exists.
_ADD_USER = (
    "INSERT OR IGNORE INTO users (id, name, issuer, subject, created_at, epoch, tokens_valid_after) "
    "VALUES (?1, ?2, '', ?2, 0, 0, 0)"
)


class LocalRuntime(Struct, frozen=True):
    """The libraries, the sources and the tools as a client calls them."""

    settings: Settings
    data_root: DataRoot
    libraries: Libraries
    sources: Mapping[str, Source]
    dispatcher: Dispatcher
    contexts: dict[str, RequestContext] = field(default_factory=dict)

    def context_for(self, name: str) -> RequestContext:
        """Returns the context of the user with this name. The same name has the same library in every run."""
        if name not in self.contexts:
            user_id = user_id_for(name)
            with closing(sqlite3.connect(self.data_root.control_path, isolation_level=None)) as control:
                control.execute(_ADD_USER, (user_id, name))
            principal = Principal(user_id, name, ClientId("bench"), frozenset(SCOPES), "local", "bench")
            self.contexts[name] = build_context(principal, self.data_root, "bench")
        return self.contexts[name]

    async def call(self, context: RequestContext, tool: str, **arguments: Any) -> Any:
        """Returns the structured content of a tool's response, as sent over the wire."""
        request = Request(1, "tools/call", {"name": tool, "arguments": arguments, "_meta": _META})
        call = modern_call(read_request_meta(request.params), request, context, NullPeer())
        result = msgspec.json.decode(msgspec.json.encode(await self.dispatcher.dispatch(call, request)))
        if result.get("isError"):
            raise ToolError(f"{tool} {arguments}: {result['content']}")
        return result["structuredContent"]


def installed_models() -> list[str]:
    """Returns the models of semantic search that can be measured here, the fastest first."""
    found = [
        name
        for name, model in NAMED_MODELS.items()
        if not model.missing_packages and find_files(model, Path(Settings().data_dir)) is not None
    ]
    return sorted(found, key=["fast", "minilm", "multilingual"].index)


def model_settings() -> dict[str, Any]:
    """Settings with which a model is used as fast as it can, and a busy machine changes nothing, because quality is
    measured and not speed."""
    return {"embedding_cpu_percent": 100, "semantic_timeout_ms": _DEADLINE_MS, "search_deadline_ms": _DEADLINE_MS}


def user_id_for(name: str) -> UserId:
    digest = hashlib.sha256(name.encode()).digest()[:16]
    return UserId("u_" + base64.b32encode(digest).decode().rstrip("=").lower())


@asynccontextmanager
async def open_local_runtime(root: Path, **changes: Any) -> AsyncIterator[LocalRuntime]:
    """Opens a runtime with default settings, but without rate limits, and without a model unless one is named."""
    unlimited = {"rate_user_per_minute": 0, "rate_tool_per_minute": 0}
    settings = build_settings(**{"data_dir": str(root), "semantic_model": WORDS_ONLY, **unlimited, **changes})
    sources = {source.name: source for source in load_sources(settings)}
    async with open_runtime(settings) as runtime:
        yield LocalRuntime(settings, runtime.data_root, runtime.libraries, sources, runtime.dispatcher)
