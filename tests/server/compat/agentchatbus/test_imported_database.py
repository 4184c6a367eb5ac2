"""A database of AgentChatBus behind the bus: its threads are where its agents left them, for their owner only."""

from pathlib import Path

from config.settings import Settings
from sources.importers.engine.discovery import discover
from sources.importers.engine.import_runner import run_import
from sources.importers.engine.limits import ImportProgress, import_limits
from sources.importers.registry import all_importers
from tests.server.compat.agentchatbus.bus_agent import BusAgent
from tests.server.rest.rest_client import RestClient
from tests.sources.importers.chat_exports import AGENTCHATBUS
from tests.sources.importers.single_files import write


async def test_imported_threads_continue_on_the_bus(api: RestClient, tmp_path: Path) -> None:
    ada = await api.library_user("ada")
    path = write(tmp_path / "old" / "bus.db", AGENTCHATBUS)
    async with ada.libraries.library(ada.context) as library:
        results = list(discover([path], import_limits(Settings()), all_importers()))
        await run_import(library, results, Settings(), ImportProgress())

    threads = (await api.get("/api/threads")).json()["threads"]
    messages = (await api.get("/api/threads/thread-1/messages")).json()
    agent = await BusAgent.register(api)
    reply = await agent.post("thread-1", "Thanks.")

    assert [(thread["id"], thread["topic"], thread["status"]) for thread in threads] == [
        ("thread-1", "Tide plan", "done")
    ]
    assert [(message["id"], message["author"], message["priority"]) for message in messages] == [
        ("m-1", "human", "normal"),
        ("m-2", "Wren", "urgent"),
    ]
    assert reply["seq"] > messages[-1]["seq"]
    assert (await api.get("/api/threads", "ben")).json()["threads"] == []
    assert (await api.get("/api/threads/thread-1/messages", "ben")).status == 404
