"""What each person can find, get and list is what a model of memberships and shares says, after any changes of these:
over MCP, REST and the console, on the engine of `TEST_STORAGE`."""

import html
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from msgspec import Struct

from auth.context import ShareRule
from auth.sharing import Sharing
from tests.live import NO_RATE_LIMITS
from tests.server.rest.rest_client import HttpLibraryUser, RestClient, RpcError, open_rest_client
from tests.tiers import examples

PEOPLE = ("ada", "ben", "cyd")
TAGS = ("red", "blue")
NAMESPACES = ("north", "south")
SOURCES = ("notes", "media", "chats", "characters", "prompts")
STEPS = 8
HTML = {"Accept": "text/html"}


class Item(Struct, frozen=True):
    """`library` is a person or a group."""

    library: str
    uri: str
    title: str
    tags: tuple[str, ...]
    namespace: str | None = None

    def matches(self, rule: ShareRule) -> bool:
        match rule.by:
            case "tag":
                return rule.value in self.tags
            case "source":
                return self.uri.startswith(f"{rule.value}://")
            case _:
                return self.namespace == rule.value


class SharedItems(Struct, frozen=True):
    """A share: what `owner` gives to a person or a group."""

    handle: str
    owner: str
    to: str
    rule: ShareRule


class World:
    """The server, and the model of it."""

    def __init__(self, api: RestClient, seed: int) -> None:
        self.api = api
        self.random = random.Random(seed)
        self.sharing = Sharing(api.server.runtime.registry.database)
        self.users: dict[str, HttpLibraryUser] = {}
        self.items: list[Item] = []
        self.groups: dict[str, str] = {}  # handles by name
        self.members: dict[tuple[str, str], str] = {}  # roles by group and person
        self.shares: dict[str, SharedItems] = {}
        self.handles: set[str] = {"g_nothing"}  # all that ever existed

    async def plant(self) -> None:
        for name in PEOPLE:
            user = self.users[name] = await self.api.library_user(name)
            for source in SOURCES:
                for tags in ((), ("red",), ("red", "blue")):
                    namespace = self.random.choice(NAMESPACES) if source == "chats" else None
                    more: dict[str, Any] = {"namespace": namespace} if namespace else {}
                    title = f"galleon {name} {source} {len(self.items)}"
                    item_id = await user.add_item(source, title, f"A {title} sails.", tags=tags, **more)
                    self.items.append(Item(name, f"{source}://{item_id}", title, tags, namespace))

    # -- changes --------------------------------------------------------------------------------------------------

    async def change(self) -> None:
        actions = [self.create_group, self.add_member, self.add_member, self.share, self.share, self.share]
        actions += [self.remove_member, self.unshare, self.unshare]
        await self.random.choice(actions)()

    async def create_group(self) -> None:
        if len(self.groups) == 2:
            return
        manager, name = self.random.choice(PEOPLE), f"crew{len(self.groups)}"
        group = await self.sharing.create_group(self.users[manager].context.user_id, name)
        self.groups[name], self.members[name, manager] = group.handle, "manager"
        self.handles.add(group.handle)
        for tags in ((), ("red",)):
            title = f"galleon {name} {len(self.items)}"
            written = await self.users[manager].call(
                "items_create", source="notes", title=title, content=f"A {title} sails.", tags=tags, library=name
            )
            assert written["uri"].endswith(f"?library={group.handle}")
            self.items.append(Item(name, written["uri"].partition("?")[0], title, tags))

    async def add_member(self) -> None:
        free = [(group, name) for group in self.groups for name in PEOPLE if (group, name) not in self.members]
        if free:
            group, name = self.random.choice(free)
            role = self.random.choice(("reader", "writer"))
            await self.sharing.add_member(group, name, role)  # type: ignore[arg-type]  # a role
            self.members[group, name] = role

    async def remove_member(self) -> None:
        removable = [key for key, role in self.members.items() if role != "manager"]
        if removable:
            group, name = self.random.choice(removable)
            await self.sharing.remove_member(None, group, name)
            del self.members[group, name]
            # What a person shared with a group that they have left is not shared any more, if the server says so.
            await self._read_shares()

    async def share(self) -> None:
        owner = self.random.choice(PEOPLE)
        own_groups = [group for group, name in self.members if name == owner]
        to = self.random.choice([name for name in (*PEOPLE, *own_groups) if name != owner])
        by, values = self.random.choice((("tag", TAGS), ("source", SOURCES), ("namespace", NAMESPACES)))
        rule = ShareRule(by, self.random.choice(values))  # type: ignore[arg-type]  # one of the three
        if any((one.owner, one.to, one.rule) == (owner, to, rule) for one in self.shares.values()):
            return
        await self.add_share(owner, to, rule)

    async def add_share(self, owner: str, to: str, rule: ShareRule) -> None:
        created = await self.sharing.create_share(self.users[owner].context.user_id, rule, to)
        self.shares[created.id] = SharedItems(created.id, owner, to, rule)
        self.handles.add(created.id)

    async def unshare(self) -> None:
        if self.shares:
            handle = self.random.choice(sorted(self.shares))
            await self.sharing.delete_share(None, handle)
            del self.shares[handle]

    async def _read_shares(self) -> None:
        left = {one.id for one in await self.sharing.list_shares(None)}
        self.shares = {handle: one for handle, one in self.shares.items() if handle in left}

    # -- the model ------------------------------------------------------------------------------------------------

    def libraries(self, person: str) -> dict[str, set[str]]:
        """The URIs in each library of others that a person may use, by its handle."""
        found: dict[str, set[str]] = {}
        for group, handle in self.groups.items():
            if (group, person) in self.members:
                found[handle] = {f"{item.uri}?library={handle}" for item in self.items if item.library == group}
        for share in self.shares.values():
            if share.owner != person and (share.to == person or (share.to, person) in self.members):
                found[share.handle] = {
                    f"{item.uri}?library={share.handle}"
                    for item in self.items
                    if item.library == share.owner and item.matches(share.rule)
                }
        return found

    def visible(self, person: str) -> set[str]:
        own = {item.uri for item in self.items if item.library == person}
        return own.union(*self.libraries(person).values())

    def visible_titles(self, person: str) -> set[str]:
        """All titles differ; ids do not."""
        titles = {item.title for item in self.items if item.library == person}
        for handle, uris in self.libraries(person).items():
            owner = self.shares[handle].owner if handle in self.shares else None
            titles |= {item.title for item in self._items_of(owner, handle) if f"{item.uri}?library={handle}" in uris}
        return titles

    # -- the server -----------------------------------------------------------------------------------------------

    async def check(self, person: str) -> None:
        expected, libraries = self.visible(person), self.libraries(person)
        assert await self.found_over_mcp(person) == expected
        assert await self.found_over_rest(person) == expected
        assert await self.listed_resources(person) == expected
        assert await self.found_in_console(person) == self.visible_titles(person)
        for handle in sorted(self.handles):
            response = await self.api.get(f"/api/v1/library/items?limit=200&library={handle}", person)
            if handle in libraries:
                assert {item["uri"] for item in response.json()["items"]} == libraries[handle]
            else:
                assert response.status == 404
        # Any item in any library, and for each library of the person items of its owner, shared or not.
        chosen = [(self.random.choice(self.items), self.random.choice(sorted(self.handles))) for _ in range(4)]
        for handle in sorted(libraries):
            owner = self.shares[handle].owner if handle in self.shares else None
            chosen += [(one, handle) for one in self.random.sample(self._items_of(owner, handle), 2)]
        for item, handle in chosen:
            await self.check_get(person, f"{item.uri}?library={handle}", expected)

    def _items_of(self, owner: str | None, handle: str) -> list[Item]:
        group = next((name for name, known in self.groups.items() if known == handle), None)
        return [item for item in self.items if item.library == (owner or group)]

    async def check_get(self, person: str, uri: str, expected: set[str]) -> None:
        user, plain = self.users[person], uri.partition("?")[0]
        over_rest = await self.api.get(f"/api/v1/items?uri={quote(uri)}", person)
        over_mcp = await user.request("tools/call", name="knowledge_get", arguments={"uri": uri})
        page = await self.api.get(f"/items/{plain.replace('://', '/')}?{uri.partition('?')[2]}", person, **HTML)
        assert over_rest.status == page.status == (200 if uri in expected else 404)
        assert ("isError" not in over_mcp) == (uri in expected)
        try:
            await user.request("resources/read", uri=uri)
            is_read = True
        except RpcError:
            is_read = False
        assert is_read == (uri in expected)
        if uri not in expected:
            # It is an absent item, in every byte.
            absent = await user.request(
                "tools/call", name="knowledge_get", arguments={"uri": f"{plain}?library=g_nothing"}
            )
            assert over_mcp["content"] == absent["content"]

    async def found_over_mcp(self, person: str) -> set[str]:
        found: set[str] = set()
        offset: int | None = 0
        while offset is not None:
            page = await self.users[person].call(
                "knowledge_search", query="galleon", limit=100, offset=offset, dedupe="off"
            )
            assert not page.get("libraries"), "all libraries answered"
            found |= _uris(page)
            offset = page.get("next_offset")
        return found

    async def found_over_rest(self, person: str) -> set[str]:
        found: set[str] = set()
        offset: int | None = 0
        while offset is not None:
            body = {"query": "galleon", "limit": 100, "offset": offset, "dedupe": "off", "order_by": "recent"}
            page = (await self.api.search(body, person)).json()
            found |= _uris(page)
            offset = page.get("next_offset")
        return found

    async def found_in_console(self, person: str) -> set[str]:
        """Titles that the pages of results show, as titles or in snippets."""
        found: set[str] = set()
        address = "/?q=galleon"
        while address:
            page = (await self.api.get(address, person, **HTML)).body.decode()
            found |= set(re.findall(r"galleon \w+ (?:\w+ )?\d+", re.sub("<[^>]+>", "", page)))
            following = re.search(r'href="([^"]+)" rel="next"', page)
            address = html.unescape(following[1]) if following else ""
        return found

    async def listed_resources(self, person: str) -> set[str]:
        found: set[str] = set()
        params: dict[str, Any] = {}
        while True:
            page = await self.users[person].request("resources/list", **params)
            found |= {entry["uri"] for entry in page["resources"] if not entry["uri"].startswith("media://types")}
            if "nextCursor" not in page:
                return found
            params = {"cursor": page["nextCursor"]}


def _uris(page: dict[str, Any]) -> set[str]:
    """The items of a page: that of a message is its conversation."""
    found = set()
    for hit in page["results"]:
        for uri in (hit["uri"], *hit.get("also_in", ())):
            plain, mark, handle = uri.partition("?")
            found.add("/".join(plain.split("/")[:3]) + mark + handle)
    return found


class MeaningWorld(World):
    """Compares meanings only. `found` counts hits in the libraries of others by the rule of the share."""

    def __init__(self, api: RestClient, seed: int) -> None:
        super().__init__(api, seed)
        self.found: Counter[str] = Counter()

    async def plant(self) -> None:
        await super().plant()
        for rule in (ShareRule("tag", "red"), ShareRule("source", "notes"), ShareRule("namespace", "north")):
            await self.add_share("ada", "ben", rule)

    async def check(self, person: str) -> None:
        expected, libraries = self.visible(person), self.libraries(person)
        user = self.users[person]
        owners = [one.context.user_id for one in self.users.values()]
        owners += [group.id for group in await self.sharing.list_groups(None)]
        for owner in owners:
            await user.libraries.embed(owner)
        # No word of it is in any item.
        page = await user.call("knowledge_search", query="boats on the ocean", limit=100, dedupe="off")
        assert page["semantic"]["status"] == "on"
        assert _uris(page) <= expected
        for handle, uris in libraries.items():
            for uri in self.random.sample(sorted(uris), min(2, len(uris))):
                similar = _uris(await user.call("items_similar", uri=uri, limit=100))
                assert similar == uris - {uri}
                self.found[self.shares[handle].rule.by if handle in self.shares else "group"] += len(similar)
            # Neither the item nor what is similar to it.
            hidden = {f"{item.uri}?library={handle}" for item in self.items} - uris
            uri = self.random.choice(sorted(hidden))
            refused = await user.request("tools/call", name="items_similar", arguments={"uri": uri})
            assert refused["isError"]


async def _walk(world: World, steps: int) -> None:
    await world.plant()
    for _ in range(steps):
        for _ in range(2):
            await world.change()
        for person in PEOPLE:
            await world.check(person)


async def test_everyone_sees_what_a_model_of_memberships_and_shares_says(own_api: RestClient) -> None:
    await _walk(World(own_api, 1), 3)


@pytest.mark.slow("is a long run against a model")
@pytest.mark.parametrize("seed", range(2, 8))
async def test_everyone_sees_what_the_model_says_after_many_changes(own_api: RestClient, seed: int) -> None:
    await _walk(World(own_api, seed), examples(STEPS))


@pytest.mark.slow("embeds libraries after every change")
async def test_meanings_are_compared_in_what_is_shared_only(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, semantic_model="fast", semantic_timeout_ms=60_000, **NO_RATE_LIMITS) as api:
        world = MeaningWorld(api, 3)
        await _walk(world, 4)

    assert all(world.found[rule] for rule in ("group", "tag", "source", "namespace")), world.found
