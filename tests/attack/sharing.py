"""Libraries that people share: calls of a person whose memberships and shares change all the time.

Ben shares his items with a tag, and the conversations of a namespace, and the group `crew` has a library. Eve is let in
and out of each of these while she calls everything that can reach them, with all identifiers that she ever got. What is
in none of them contains canaries that she must never get. The canary of a library that she has just lost must not be in
any response to a call that began afterwards, and nothing that she sends may change it.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from auth.context import ShareRule
from auth.sharing import Sharing
from config.errors import ControlDatabaseLocked
from config.paths import UserId
from sources.drafts import MessageDraft
from tests.attack.app_client import AttackRequest, Client, InProcessClient
from tests.attack.leak_detector import LeakDetector, new_canary
from tests.live import NO_RATE_LIMITS, live, make_settings
from tests.server.clients import message, modern_headers, modern_params
from tests.server.rest.rest_client import JSON, RestClient, rest_client_of

WORD = "galleon"
_ITEMS = 5
# How long an access lasts at most, and how long it is gone: a few calls.
_PHASE_S = 0.05


class SharingResult(Struct):
    """`visible` are calls that showed a library while Eve had it, and `after_revocation` those that began when she had
    lost it."""

    calls: int
    changes: int
    visible: int
    after_revocation: int
    leaks: list[str]
    failures: list[str]


class Grant:
    """One way of a person into a library, with the name of its canary. `epoch` changes before it is given and after it
    was taken."""

    def __init__(
        self, person: str, name: str, give: Callable[[], Awaitable[None]], take: Callable[[], Awaitable[None]]
    ) -> None:
        self.person = person
        self.name = name
        self.give = give
        self.take = take
        self.is_open = False
        self.epoch = 0


class AccessChanges:
    """Gives and takes grants all the time while it is open, and knows which of them nobody had during a call."""

    def __init__(self, grants: Sequence[Grant], phase_s: float = _PHASE_S) -> None:
        self._grants = grants
        self._phase_s = phase_s
        self._random = random.Random(7)
        self._is_running = False
        self.count = 0
        self.visible = 0
        self.after_revocation = 0
        self.failures: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._is_running = True
        changing = [asyncio.create_task(self._change(grant)) for grant in self._grants]
        try:
            yield
        finally:
            # Not cancelled: each takes what it gave, because the next attack begins with nothing shared.
            self._is_running = False
            ended = await asyncio.gather(*changing, return_exceptions=True)
            self.failures += [repr(error) for error in ended if error is not None]

    async def _change(self, grant: Grant) -> None:
        while self._is_running:
            await asyncio.sleep(self._phase_s * self._random.random())
            grant.epoch += 1
            await _when_possible(grant.give)
            grant.is_open = True
            await asyncio.sleep(self._phase_s * self._random.random())
            await _when_possible(grant.take)
            grant.is_open = False
            grant.epoch += 1
            self.count += 2

    def before_call(self) -> list[tuple[int, bool]]:
        return [(grant.epoch, grant.is_open) for grant in self._grants]

    def forbidden(self, person: str | None, before: list[tuple[int, bool]], shown: Collection[str]) -> list[str]:
        """Counts a call of a person, which began at `before` and has just ended. Returns what it showed of libraries
        that the person could not read at any time of the call."""
        allowed: set[str] = set()
        for grant, (epoch, was_open) in zip(self._grants, before, strict=True):
            if grant.person != person:
                continue
            # Closed before the call began, and not opened before it ended.
            if not was_open and epoch % 2 == 0 and grant.epoch == epoch:
                self.after_revocation += epoch > 0
            else:
                allowed.add(grant.name)
        self.visible += bool(allowed.intersection(shown))
        return sorted(set(shown) - allowed)


async def _when_possible(change: Callable[[], Awaitable[None]]) -> None:
    """Makes a change, also on a machine that is so busy that the control database is locked for a while."""
    while True:
        try:
            return await change()
        except ControlDatabaseLocked:
            await asyncio.sleep(_PHASE_S)


def share_grant(sharing: Sharing, person: str, name: str, rule: ShareRule, owner: UserId, handles: list[str]) -> Grant:
    """Shares a part of the owner's library with a person. `handles` gets those of the latest shares: of the many that
    the person had, these are worth trying."""
    handle = ""

    async def give() -> None:
        nonlocal handle
        handle = (await sharing.create_share(owner, rule, person)).id
        handles[2:] = [*handles[2:], handle][-6:]

    async def take() -> None:
        await sharing.delete_share(None, handle)

    return Grant(person, name, give, take)


async def attack_sharing(directory: Path, calls: int, deadline_s: float, workers: int = 4) -> SharingResult:
    settings = make_settings(directory / "sharing", **NO_RATE_LIMITS)
    async with live(settings) as server:
        attack = SharingAttack(rest_client_of(server))
        await attack.plant()
        return await attack.run(calls, deadline_s, workers)


class SharingAttack:
    def __init__(self, api: RestClient) -> None:
        self._api = api
        self._client: Client = InProcessClient(api.app)
        self._sharing = Sharing(api.server.runtime.registry.database)
        self._canaries = {name: new_canary(name) for name in ("private", "human", "stranger", "crew", "tag", "space")}
        self._detector = LeakDetector(self._canaries)
        self._uris: list[str] = []
        self._handles: list[str] = ["s_unknown"]
        self._grants: list[Grant] = []
        self._random = random.Random(7)
        self.result = SharingResult(0, 0, 0, 0, [], [])

    async def plant(self) -> None:
        users = {name: await self._api.library_user(name) for name in ("ben", "eve", "cyd")}
        for user in users.values():
            await self._api.server.runtime.registry.set_role(user.context.user_id, "writer")
        ben, canaries = users["ben"], self._canaries
        secret = MessageDraft(role="user", content=f"{WORD} {canaries['human']}", metadata={"human_only": True})
        for number in range(_ITEMS):
            for source in ("notes", "media", "characters", "prompts", "chats"):
                for part, tags in (("private", ("home",)), ("tag", ("work",))):
                    title, text = f"{WORD} {canaries[part]} {number}", f"A {WORD} {canaries[part]} of {source} {number}"
                    item_id = await ben.add_item(source, title, text, tags=tags)
                    self._uris.append(f"{source}://{item_id}")
            text = f"A {WORD} {canaries['space']} {number}"
            chat = await ben.add_chat(f"{WORD} {canaries['space']}", text, secret, namespace="harbour")
            self._uris.append(f"chats://{chat}")
            await users["cyd"].add_note(f"{WORD} {canaries['stranger']}", f"A {WORD} {canaries['stranger']} {number}")
        group = await self._sharing.create_group(ben.context.user_id, "crew")
        self._handles.append(group.handle)
        for number in range(_ITEMS):
            title, text = f"{WORD} {canaries['crew']}", f"A {WORD} {canaries['crew']} {number}"
            arguments = {"source": "notes", "title": title, "content": text, "library": "crew"}
            written = await ben.call("items_create", **arguments)
            self._uris.append(written["uri"].partition("?")[0])
        self._before = await self._crew_items()
        self._credential = await self._api.server.bearer("eve")

        async def join() -> None:
            await self._sharing.add_member("crew", "eve", "reader")

        async def leave() -> None:
            await self._sharing.remove_member(None, "crew", "eve")

        self._grants.append(Grant("eve", "crew", join, leave))
        for name, rule in (("tag", ShareRule("tag", "work")), ("space", ShareRule("namespace", "harbour"))):
            self._grants.append(share_grant(self._sharing, "eve", name, rule, ben.context.user_id, self._handles))
        self._changes = AccessChanges(self._grants)

    async def _crew_items(self) -> bytes:
        return (await self._api.get("/api/v1/library/items?library=crew", "ben")).body

    # -- the attack ----------------------------------------------------------------------------------------------------

    async def run(self, calls: int, deadline_s: float, workers: int) -> SharingResult:
        due = time.monotonic() + deadline_s
        changes = self._changes
        async with changes.running():
            await asyncio.gather(*(self._call_until(calls, due) for _ in range(workers)))
        self.result.failures += changes.failures
        self.result.changes, self.result.visible = changes.count, changes.visible
        self.result.after_revocation = changes.after_revocation
        if await self._crew_items() != self._before:
            self.result.leaks.append("a reader changed the library of a group")
        if self.result.calls < calls:
            self.result.failures.append(f"sharing: expected {calls} calls, had time for {self.result.calls}")
        for found, what in ((self.result.visible, "while shared"), (self.result.after_revocation, "after revocation")):
            if not found:
                self.result.failures.append(f"sharing: no call {what}, so the calls prove nothing")
        return self.result

    async def _call_until(self, calls: int, due: float) -> None:
        while self.result.calls < calls and time.monotonic() < due:
            self.result.calls += 1
            request = self._next_request()
            before = self._changes.before_call()
            try:
                response = await self._client.send(request, self._credential)
            except TimeoutError:
                self.result.failures.append(f"{request.target}: no response in time")
                continue
            if response.status >= 500 and response.status != 503:
                self.result.failures.append(f"{request.target}: {response.status} {response.body[:200]!r}")
            shown = self._detector.owners_in(response.body, None)
            self.result.leaks += [
                f"{name} by {request.target} {request.path} {request.body[:300]!r}"
                for name in self._changes.forbidden("eve", before, shown)
            ]

    def _next_request(self) -> AttackRequest:
        pick = self._random.choice
        uri, handle = pick(self._uris), pick(self._handles)
        source, _, item_id = uri.partition("://")
        address = f"{uri}?library={handle}"
        return pick(list(self._requests(source, item_id, uri, handle, address)))

    def _requests(self, source: str, item_id: str, uri: str, handle: str, address: str) -> Iterator[AttackRequest]:
        for tool, arguments in (
            ("knowledge_search", {"query": WORD, "limit": 50}),
            ("knowledge_search", {"query": f"{WORD} library:{handle}", "explain": True, "dedupe": "off"}),
            ("knowledge_search", {"query": "tag:work", "order_by": "recent"}),
            ("knowledge_search", {"query": "tag:home OR " + WORD, "offset": 5}),
            ("knowledge_get", {"uri": address}),
            ("knowledge_get", {"source": source, "id": item_id, "library": handle}),
            ("knowledge_get", {"uri": uri}),
            ("search", {"query": WORD}),
            ("fetch", {"id": address}),
            (f"{source}_search", {"query": WORD, "library": handle}),
            (f"{source}_get", {"uri": address}),
            ("items_similar", {"uri": address}),
            ("items_update", {"uri": address, "title": "changed"}),
            ("items_tag", {"uri": address, "add": ["work"]}),
            ("items_delete", {"uri": address}),
            ("items_create", {"source": "notes", "title": "new", "library": handle}),
            ("items_copy", {"uri": address, "to": handle}),
            ("notes_append", {"uri": address, "text": "more"}),
            ("chats_append", {"uri": address, "messages": [{"content": "more"}]}),
        ):
            yield _rpc("tools/call", {"name": tool, "arguments": arguments})
        yield _rpc("resources/list", {})
        yield _rpc("resources/read", {"uri": address})
        yield _rpc("prompts/list", {})
        yield _rpc("prompts/get", {"name": f"prompt_{item_id}?library={handle}"})
        yield _rpc("prompts/get", {"name": f"character_{item_id}?library={handle}"})
        yield AttackRequest(
            "search", "POST", "/api/v1/search", JSON, msgspec.json.encode({"query": WORD, "limit": 100})
        )
        for path in (
            f"/api/v1/items?uri={quote(address, safe='')}&mode=full",
            f"/api/v1/items/{source}/{item_id}?library={handle}&mode=full",
            f"/api/v1/library?library={handle}",
            f"/api/v1/library/items?library={handle}&limit=200",
            f"/api/v1/library/items?library={handle}&tag=home",
            f"/api/v1/items/links?uri={quote(address, safe='')}",
            f"/api/v1/items/similar?uri={quote(address, safe='')}",
            f"/api/v1/items/fields?uri={quote(address, safe='')}",
            f"/api/v1/reads?library={handle}&titles=true",
            f"/items/{source}/{item_id}?library={handle}",
        ):
            yield AttackRequest(path.partition("?")[0], "GET", path)


def _rpc(method: str, params: dict[str, Any]) -> AttackRequest:
    body = msgspec.json.encode(message(method, modern_params(params), 1))
    headers = modern_headers(method, params)
    return AttackRequest(params.get("name", method), "POST", "/mcp/full", headers, body)
