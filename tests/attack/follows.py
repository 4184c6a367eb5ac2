"""Followed sources: users try to read, and to write, files that are not theirs.

Ada and Ben have a folder each (`follow_roots` with `{user}`), Eve chose a name that a folder has, and Dan was an
administrator. Files that they must not get contain canaries, for which everything they can read is searched.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from auth.context import READ, SCOPES, WRITE
from tests.attack.app_client import AttackRequest, InProcessClient
from tests.attack.leak_detector import LeakDetector, new_canary
from tests.live import NO_RATE_LIMITS, LiveServer, live, make_settings
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import JSON, rest_client_of

_FOLLOWS = "/api/v1/follows"
_WAIT_MAX_S = 60.0
_POLL_S = 0.05


class FollowResult(Struct):
    """`attempts` are requests that must be refused, and files that must not be read."""

    attempts: int
    leaks: list[str]
    failures: list[str]


async def attack_follows(directory: Path, rounds: int) -> FollowResult:
    """`rounds` is how often the parts of a path are exchanged for links while it is read."""
    root = (directory / "follows").resolve()
    roots = (str(root / "vaults" / "{user}"), str(root / "shared"))
    settings = make_settings(root / "data", follow_roots=roots, follow_poll_s=0.05, **NO_RATE_LIMITS)
    async with live(settings) as server:
        attack = FollowAttack(server, root)
        await attack.plant()
        await attack.follow_forbidden_locations()
        await attack.use_links_in_the_own_folder()
        await attack.use_follows_of_others()
        await attack.use_the_path_of_a_former_administrator()
        await attack.swap_folders(rounds)
        await attack.search_for_canaries()
        return attack.result


class FollowAttack:
    def __init__(self, server: LiveServer, root: Path) -> None:
        self._server = server
        self._root = root
        self._client = InProcessClient(rest_client_of(server).app)
        self._vaults = root / "vaults"
        canaries = {name: new_canary(name) for name in ("ada", "ben", "server")}
        self._canaries = canaries
        self._detector = LeakDetector(canaries)
        self._credentials: dict[tuple[str, tuple[str, ...]], dict[str, str]] = {}
        self.result = FollowResult(0, [], [])

    async def plant(self) -> None:
        registry = self._server.runtime.registry
        for name in ("ada", "ben"):
            await registry.add_user(name)
        await registry.add_user("dan", role="admin")
        await registry.ensure_user("https://id.example.com", "1", "ben2")
        for name in ("ada", "ben"):
            _write(self._vaults / name / "Diary.md", f"# Diary\n{self._canaries[name]} of {name}")
        # Eve chose the name of a folder that exists.
        _write(self._vaults / "ben2" / "Diary.md", f"# Diary\n{self._canaries['server']}")
        _write(self._root / "outside" / "Secret.md", f"# Secret\n{self._canaries['server']}")

    # -- attacks -------------------------------------------------------------------------------------------------------

    async def follow_forbidden_locations(self) -> None:
        """No response may differ by whether the path exists."""
        for user in ("ada", "ben2"):
            messages = set()
            for location in self._forbidden(user):
                for fields in ({}, {"write_back": True}, {"format": "markdown", "keep_deleted": True}):
                    response = await self._send(user, "POST", "", {"location": location, **fields})
                    self._expect(response, (400,), f"{user} follows {location!r} with {fields}")
                    if location.startswith("/") and response.status == 400:
                        messages.add(response.json()["error"]["message"])
            if len(messages) > 1:
                self.result.failures.append(f"the responses to {user} differ: {sorted(messages)}")

    def _forbidden(self, user: str) -> Iterator[str]:
        own, ben = self._vaults / user, self._vaults / "ben"
        own.mkdir(parents=True, exist_ok=True)
        for name, target in (("to-ben", ben), ("to-outside", self._root / "outside"), ("to-root", Path("/"))):
            with suppress(FileExistsError):
                (own / name).symlink_to(target)
            yield str(own / name)
            yield str(own / name / "Diary.md")
        yield from map(str, (ben, ben / "Diary.md", self._root / "outside", self._root / "outside" / "Secret.md"))
        yield from map(str, (self._root, self._vaults, self._root / "data", self._root / "data" / "control.db"))
        yield from (f"{own}/../ben", f"{own}/./../ben/Diary.md", f"{own}//..//ben", f"{own}/../../outside")
        yield from (f"{self._vaults}/{{user}}", f"{own} ", f"{own}\n", f"{own}2", f"{self._root}/shared2")
        yield from ("/", "/etc", "/etc/passwd", "/proc/self/environ", "/proc/self/root/etc", "/dev/stdin", "/no/such")
        yield from (f"/proc/self/root{ben}", f"/proc/{os.getpid()}/cwd", "relative", "../ben", "", "~/vault", "\0")
        yield from (f"file://{ben}", f"FILE:///{ben}", "http://", "http://ada:secret@example.com/", "https://[::1")

    async def use_links_in_the_own_folder(self) -> None:
        own, ben = self._vaults / "ada", self._vaults / "ben"
        (own / "Linked.md").symlink_to(ben / "Diary.md")
        (own / "Outside.md").symlink_to(self._root / "outside" / "Secret.md")
        (own / "Relative.md").symlink_to("../ben/Diary.md")
        (own / "Chain.md").symlink_to(own / "Linked.md")
        (own / "loop").symlink_to(own)
        os.mkfifo(own / "Pipe.md")
        self.result.attempts += 9  # with those of `_forbidden`
        await self._follow("ada", own, write_back=True)
        await self._wait_for("ada", self._canaries["ada"])

    async def use_follows_of_others(self) -> None:
        follow = await self._follow("ben", self._vaults / "ben")
        await self._wait_for("ben", self._canaries["ben"])
        before = await self._send("ben", "GET", f"/{follow}")
        resolve = {"file": "Diary.md", "keep": "file"}
        for user in ("ada", "ben2", "dan"):
            for method, path, body in (
                ("GET", "", None),
                ("PATCH", "", {"paused": True}),
                ("POST", "/run", {}),
                ("POST", "/resolve", resolve),
                ("DELETE", "", None),
            ):
                response = await self._send(user, method, f"/{follow}{path}", body)
                self._expect(response, (404,), f"{user} sends {method} {path} to the followed source of ben")
            self._search_response(user, await self._send(user, "GET"))
        after = await self._send("ben", "GET", f"/{follow}")
        if _stable(before) != _stable(after):
            self.result.leaks.append("others changed the followed source of ben")

    async def use_the_path_of_a_former_administrator(self) -> None:
        """What was read before stays. What appears afterwards must not be read."""
        folder = self._root / "for-administrators"
        _write(folder / "Public.md", "# Public\nharmless")
        path = f"/{await self._follow('dan', folder, SCOPES)}"
        await self._wait_for("dan", "harmless")
        # The role is decided when a run begins, so the first one has to end.
        async with asyncio.timeout(_WAIT_MAX_S):
            while (await self._send("dan", "GET", path)).json()["state"] != "current":
                await asyncio.sleep(_POLL_S)
        registry = self._server.runtime.registry
        dan = await registry.user_by_name("dan")
        assert dan is not None
        await registry.set_role(dan.id, "writer")
        # A run that has already begun keeps the rights of its start.
        async with asyncio.timeout(_WAIT_MAX_S):
            while self._server.runtime.following.running:
                await asyncio.sleep(_POLL_S)
        _write(folder / "Later.md", f"# Later\n{self._canaries['server']}")
        await self._send("dan", "POST", f"{path}/run", {})
        async with asyncio.timeout(_WAIT_MAX_S):
            while "administrator" not in (await self._send("dan", "GET", path)).json()["problem"]:
                await asyncio.sleep(_POLL_S)
        for location in (folder, self._root / "outside"):
            for scopes in (SCOPES, (READ, WRITE)):
                response = await self._send("dan", "POST", "", {"location": str(location)}, scopes)
                self._expect(response, (400, 409), f"a former administrator follows {location}")

    async def swap_folders(self, rounds: int) -> None:
        """Replaces parts of a followed path by links to another user's folder while it is read and written."""
        own, ben = self._vaults / "ada", self._vaults / "ben"
        inner = own / "inner"
        _write(inner / "Diary.md", "# Diary\nsteep")
        follow = (await self._send("ada", "GET")).json()["follows"][0]["id"]
        files = sorted(path.name for path in ben.iterdir())
        for number in range(rounds):
            for folder in (inner, own):
                moved = folder.with_name(folder.name + ".moved")
                await self._send("ada", "POST", f"/{follow}/run", {})
                note = {"title": f"Note {number} {folder.name}", "content": self._canaries["ada"]}
                await self._request("ada", "POST", "/api/v1/items/notes", note)
                folder.rename(moved)
                folder.symlink_to(ben)
                await self._send("ada", "POST", f"/{follow}/run", {})
                await self._wait_for_run()
                folder.unlink()
                moved.rename(folder)
                self.result.attempts += 1
        if sorted(path.name for path in ben.iterdir()) != files:
            self.result.leaks.append("notes of ada were written to the folder of ben")

    async def search_for_canaries(self) -> None:
        """Everything that a user can read is in the export."""
        for user in ("ada", "ben", "ben2", "dan"):
            for path in ("/api/v1/export", _FOLLOWS, "/api/v1/library/items"):
                self._search_response(user, await self._request(user, "GET", path))

    # -- requests ------------------------------------------------------------------------------------------------------

    async def _follow(
        self, user: str, location: Path, scopes: tuple[str, ...] = (READ, WRITE), *, write_back: bool = False
    ) -> str:
        """Follows what the user may follow, and returns its id. A request that was repeated finds it followed."""
        body = {"location": str(location), "write_back": write_back}
        self._expect(await self._send(user, "POST", "", body, scopes), (201, 409), f"{user} follows {location}")
        follows = (await self._send(user, "GET")).json()["follows"]
        return next(str(follow["id"]) for follow in follows if follow["location"] == str(location))

    async def _send(
        self, user: str, method: str, path: str = "", body: Any = None, scopes: tuple[str, ...] = (READ, WRITE)
    ) -> HttpResponse:
        return await self._request(user, method, _FOLLOWS + path, body, scopes)

    async def _request(
        self, user: str, method: str, path: str, body: Any = None, scopes: tuple[str, ...] = (READ, WRITE)
    ) -> HttpResponse:
        content = b"" if body is None else msgspec.json.encode(body)
        credential = await self._credential(user, scopes)
        async with asyncio.timeout(_WAIT_MAX_S):
            while True:
                response = await self._client.send(AttackRequest(path, method, path, JSON, content), credential)
                if response.status != 503:
                    break
                # A busy machine refuses calls that would wait too long.
                await asyncio.sleep(_POLL_S)
        if response.status >= 500:
            self.result.failures.append(f"{method} {path} by {user}: {response.status} {response.body[:200]!r}")
        return response

    async def _credential(self, user: str, scopes: tuple[str, ...]) -> dict[str, str]:
        """Returns a key. A former administrator keeps the one from before."""
        if (user, scopes) not in self._credentials:
            registry = self._server.runtime.registry
            record = await registry.user_by_name(user)
            assert record is not None
            _, secret = await registry.create_key(record.id, "attack", scopes)
            self._credentials[user, scopes] = {"Authorization": f"Bearer {secret}"}
        return self._credentials[user, scopes]

    def _expect(self, response: HttpResponse, statuses: tuple[int, ...], what: str) -> None:
        self.result.attempts += 1
        if response.status not in statuses:
            found = self.result.leaks if response.status < 300 else self.result.failures
            found.append(f"{what}: {response.status} {response.body[:200].decode(errors='replace')}")

    def _search_response(self, user: str, response: HttpResponse) -> None:
        for owner in self._detector.owners_in(response.body, user):
            self.result.leaks.append(f"{user} got data of {owner} by following")

    async def _wait_for(self, user: str, word: str) -> None:
        async with asyncio.timeout(_WAIT_MAX_S):
            while not (await self._request(user, "POST", "/api/v1/search", {"query": word})).json()["results"]:
                await asyncio.sleep(_POLL_S)

    async def _wait_for_run(self) -> None:
        runs = self._server.runtime.following.runs
        async with asyncio.timeout(_WAIT_MAX_S):
            while self._server.runtime.following.runs == runs:
                await asyncio.sleep(_POLL_S)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _stable(response: HttpResponse) -> Any:
    """Returns what a user decides about a followed source; the rest changes with each run."""
    body = response.json()
    return body["id"], body["location"], body["state"] == "paused"
