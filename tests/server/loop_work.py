"""A server in the process whose calls are measured: how much CPU time the event loop's own thread spends on each."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from starlette.types import ASGIApp

from server.app import build_app
from server.cli.local_library import local_context, single_user
from server.lifespan import open_runtime
from server.metrics import Metrics
from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.storage.contract import Library
from tests.build_settings import build_settings
from tests.server.clients import message, modern_headers, modern_params
from tests.server.http_client import HttpResponse
from tests.server.in_process import call_app

WORDS = "the galleon sailed on, over {{sea}} and <user> sand. "


class MeasuredServer:
    def __init__(self, app: ASGIApp, library: Library) -> None:
        self.library = library
        self._app = app

    async def mcp(self, method: str, **params: Any) -> float:
        body = msgspec.json.encode(message(method, modern_params(params), 1))
        return await self.rest("POST", "/mcp/full", modern_headers(method, params), body)

    async def tool(self, name: str, **arguments: Any) -> float:
        return await self.mcp("tools/call", name=name, arguments=arguments)

    async def rest(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> float:
        """Returns the CPU time of the event loop's thread. The tests run on it, and do nothing else meanwhile."""
        before_s = time.thread_time()
        response: HttpResponse = await call_app(self._app, method, path, headers, body)
        spent_s = time.thread_time() - before_s
        assert response.status == 200, response.body[:300]
        assert b'"isError":true' not in response.body, response.body[:300]
        return spent_s


@asynccontextmanager
async def open_measured_server(root: Path, chars: int) -> AsyncIterator[MeasuredServer]:
    """Every item of the library has a text of about `chars` characters."""
    settings = build_settings(
        data_dir=str(root),
        library_deadline_ms=600_000,
        search_deadline_ms=600_000,
        fanout_deadline_ms=600_000,
        call_deadline_ms=600_000,
    )
    text = WORDS * (chars // len(WORDS))
    async with open_runtime(settings) as runtime:
        context = local_context(await single_user(runtime.registry, settings), runtime.data_root)
        async with runtime.libraries.library(context) as library:
            await library.notes.create(NoteDraft(title="Ship", content=text, uuid="ship"))
            await library.media.create(MediaDraft(title="Ship", content=text))
            messages = [MessageDraft(role=role, content=text) for role in ("user", "assistant")]
            await library.chats.create(ConversationDraft(title="Ship", uuid="chat"), messages)
            await library.characters.create(CharacterDraft(name="Ship", description=text, first_message=text))
            await library.prompts.create(PromptDraft(name="Ship", user_prompt=text, details=text))
            yield MeasuredServer(build_app(runtime, Metrics()), library)
