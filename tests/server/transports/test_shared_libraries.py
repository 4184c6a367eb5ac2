"""Revoking a membership or a share takes effect at the next call, on every transport, whichever process revokes it."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from auth.context import ShareRule
from auth.registry import Registry
from auth.sharing import Sharing
from server.protocol.call import Call
from server.protocol.catalog import Tool
from server.stores import control_location
from tests.live import LiveServer, live, make_settings
from tests.server.clients import LegacyClient, SseClient, WebSocketClient, message, modern_params
from tests.server.http_client import fetch
from tests.server.rest.rest_client import rest_client_of
from tests.server.sample_catalog import EchoOutput, NoInput, SampleCatalog
from tests.server.transports.test_stdio import open_pipes


async def list_libraries(call: Call, _args: NoInput) -> EchoOutput:
    names = [f"{one.name} {one.role}" for one in call.context.principal.libraries]
    return EchoOutput(", ".join(names), call.context.principal.user_name)


LIBRARIES = Tool(
    name="libraries", title="Libraries", description="Sample", input=NoInput, handler=list_libraries, output=EchoOutput
)


@pytest.fixture
async def server(tmp_path: Path, samples: SampleCatalog) -> AsyncIterator[LiveServer]:
    samples.catalog.add_tool(LIBRARIES)
    async with live(make_settings(tmp_path), catalog=samples.catalog) as server:
        yield server


@pytest.fixture
async def elsewhere(server: LiveServer) -> AsyncIterator[Sharing]:
    """Another process, which has the same data."""
    location = control_location(server.runtime.settings, server.runtime.data_root)
    async with Registry.open(location, waits_for_servers=True) as registry:
        yield Sharing(registry.database)


def text_of(response: Any) -> str:
    return str(response["result"]["structuredContent"]["text"])


async def test_open_connections_have_what_their_user_has_now(server: LiveServer, elsewhere: Sharing) -> None:
    ada, ben = await server.user("ada"), await server.user("ben")
    headers = await server.bearer("ben")
    here = Sharing(server.runtime.registry.database)
    team = await here.create_group(ada.id, "team")
    ticket = (await fetch(server.url, "POST", "/mcp/ticket", headers, b"")).json()["ticket"]
    invitation, _ = await here.invite(ada.id, "team", "writer", "ben")
    await here.accept(ben.id, invitation.id)
    async with (
        WebSocketClient.open(f"{server.ws}?ticket={ticket}") as by_ticket,
        WebSocketClient.open(server.ws, headers) as socket,
        SseClient.open(server, headers) as events,
    ):
        http = await LegacyClient.open(server, "ben")
        for client in (by_ticket, socket, events):
            await client.initialize()

        async def all_have(expected: str) -> None:
            for client in (by_ticket, socket, events):
                assert text_of(await client.call("libraries")) == expected, client
            assert text_of((await http.call("libraries")).json()) == expected

        # The ticket was issued before the membership.
        await all_have("team writer")
        await elsewhere.set_role(ada.id, "team", "ben", "reader")
        await all_have("team reader")
        share = await here.create_share(ada.id, ShareRule("tag", "recipes"), "ben")
        await all_have("team reader, ada/recipes reader")
        await elsewhere.delete_share(ada.id, share.id)
        await all_have("team reader")
        await elsewhere.remove_member(ada.id, "team", "ben")
        await all_have("")
    assert team.members == 1


async def test_stdio_has_what_its_user_has_now(tmp_path: Path, samples: SampleCatalog) -> None:
    samples.catalog.add_tool(LIBRARIES)
    async with open_pipes(tmp_path, samples) as pipes:
        registry = pipes.runtime.registry
        ada, sharing = await registry.user_by_name("ada"), Sharing(registry.database)
        assert ada is not None

        async def libraries() -> str:
            await pipes.send(message("tools/call", modern_params({"name": "libraries", "arguments": {}}), 1))
            return text_of(await pipes.receive())

        assert await libraries() == ""
        await sharing.create_group(ada.id, "team")
        assert await libraries() == "team manager"
        await sharing.close_group(ada.id, "team")
        assert await libraries() == ""


async def test_subscriptions_follow_what_is_shared_now(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        api, sharing = rest_client_of(server), Sharing(server.runtime.registry.database)
        ada, ben = [await api.library_user(name) for name in ("ada", "ben")]
        team = await sharing.create_group(ada.context.user_id, "team")
        await sharing.add_member("team", "ben", "reader")
        rules = (ShareRule("tag", "recipes"), ShareRule("namespace", "north"), ShareRule("source", "prompts"))
        shares = [(await sharing.create_share(ada.context.user_id, rule, "ben")).id for rule in rules]
        tagged = f"notes://{await ada.add_note('Soup', 'Boil.', tags=['recipes'])}"
        private = f"notes://{await ada.add_note('Diary', 'Dear')}"
        north = f"chats://{await ada.add_chat('North', 'Hello', namespace='north')}"
        south = f"chats://{await ada.add_chat('South', 'Hello', namespace='south')}"
        prompt = f"prompts://{await ada.add_prompt('Summary', 'Sum up.')}"
        created = await ada.call("items_create", source="notes", title="Plan", content="x", library="team")
        plan, own = created["uri"], f"notes://{await ben.add_note('Own', 'Mine')}"
        changed = (tagged, private, north, south, prompt, plan)
        expected = {
            *(f"{tagged}?library={shares[0]}", f"{north}?library={shares[1]}"),
            *(f"{prompt}?library={shares[2]}", plan),
        }
        handles = [*shares, team.handle]
        async with WebSocketClient.open(server.ws, await server.bearer("ben")) as socket:
            await socket.initialize()
            for uri in (own, *(f"{one.partition('?')[0]}?library={handle}" for one in changed for handle in handles)):
                await socket.request("resources/subscribe", {"uri": uri})

            async def updates() -> set[str]:
                """All items change, the one of Ben last."""
                for user, uri in (*((ada, uri) for uri in changed), (ben, own)):
                    await user.call("items_tag", uri=uri, add=[f"tag{next(numbers)}"])
                found: set[str] = set()
                while own not in found:
                    received = await socket.receive()
                    if received["method"] == "notifications/resources/updated":
                        found.add(received["params"]["uri"])
                return found - {own}

            numbers = itertools.count()
            assert await updates() == expected
            # An item that the rule does not cover any more is not shared.
            await ada.call("items_tag", uri=tagged, remove=["recipes"])
            assert await updates() == expected - {f"{tagged}?library={shares[0]}"}
            await ada.call("items_tag", uri=tagged, add=["recipes"])
            assert await updates() == expected
            for share in shares:
                await sharing.delete_share(None, share)
            assert await updates() == {plan}
            await sharing.remove_member(None, "team", "ben")
            assert await updates() == set()
