"""Whose files are followed for whom: names that people choose themselves, and roles that change."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import msgspec
import pytest

from auth.accounts.service import AccountLinks
from auth.context import SCOPES
from auth.control_database import CONTROL_SCHEMA
from auth.follows import Deployment, Deployments, FollowRecord, Follows
from auth.registry import Registry, UserRecord
from auth.tokens import mint_token
from config.errors import InvalidParams
from config.paths import DataRoot, UserId
from config.settings import Settings
from server.following.deployments import DeploymentFolders
from server.following.locations import allowed_location
from server.stores import control_location
from tests.live import NO_RATE_LIMITS, LiveServer, live, make_settings
from tests.server.following.tldw_deployment import make_user
from tests.server.http_client import HttpResponse, fetch

WAIT_MAX_S = 60
JSON = {"Content-Type": "application/json"}
NAME = "7"
# The last schema of the control database without `named_by`.
BEFORE_OWNERSHIP = 8
Creation = Callable[[Registry, Settings], Awaitable[UserRecord]]


async def invited(registry: Registry, settings: Settings, name: str = "") -> UserRecord:
    links = AccountLinks(registry.database)
    link = await links.create_invitation("writer", name)
    return await links.redeem("invitation", link.path.rpartition("/")[2], NAME, "a hash")


async def invited_by_name(registry: Registry, settings: Settings) -> UserRecord:
    return await invited(registry, settings, NAME)


async def set_up(registry: Registry, settings: Settings) -> UserRecord:
    links = AccountLinks(registry.database)
    link = await links.create_setup()
    assert link is not None
    return await links.redeem("setup", link.path.rpartition("/")[2], NAME, "a hash")


async def added(registry: Registry, _settings: Settings) -> UserRecord:
    return await registry.add_user(NAME)


async def added_with_issuer(registry: Registry, _settings: Settings) -> UserRecord:
    return await registry.add_user(NAME, "https://idp.example", "f00d")


async def introduced(registry: Registry, _settings: Settings) -> UserRecord:
    """As an OpenID provider does, and the issuer of tokens with `jwt_create_users`."""
    return await registry.ensure_user("https://idp.example", "f00d", NAME)


@asynccontextmanager
async def open_registry(settings: Settings) -> AsyncIterator[Registry]:
    root = DataRoot(Path(settings.data_dir))
    root.prepare()
    async with Registry.open(control_location(settings, root)) as registry:
        yield registry


async def deployment_of(registry: Registry, tmp_path: Path) -> Deployment:
    root = tmp_path / "user_databases"
    make_user(root, 7)
    return await Deployments(registry.database).add(Deployment(location=str(root.resolve())))


@pytest.mark.parametrize("create", [invited, introduced])
async def test_chosen_name_does_not_open_a_folder_until_it_is_confirmed(tmp_path: Path, create: Creation) -> None:
    vault = tmp_path / "vaults" / NAME
    vault.mkdir(parents=True)
    settings = make_settings(tmp_path / "data", follow_roots=(str(tmp_path / "vaults" / "{user}"),))
    async with open_registry(settings) as registry:
        user = await create(registry, settings)
        deployment, folders = await deployment_of(registry, tmp_path), DeploymentFolders(settings, registry)

        assert await folders.follow_new(deployment) == 0
        [folder] = await folders.find(deployment)
        assert (folder.record, f"florilegium user confirm {NAME}" in folder.problem) == (None, True)
        with pytest.raises(InvalidParams, match="confirm"):
            allowed_location(settings, str(vault), user, is_administrator=False, writes_back=False, others=())

        user = await registry.confirm_name(user.id)

        assert await folders.follow_new(deployment) == 1
        allowed_location(settings, str(vault), user, is_administrator=False, writes_back=False, others=())


@pytest.mark.parametrize("create", [added, added_with_issuer, invited_by_name, set_up])
async def test_users_whom_the_operator_named_have_their_folders(tmp_path: Path, create: Creation) -> None:
    settings = make_settings(tmp_path / "data")
    async with open_registry(settings) as registry:
        await create(registry, settings)
        deployment = await deployment_of(registry, tmp_path)

        assert await DeploymentFolders(settings, registry).follow_new(deployment) == 1


async def test_user_of_a_new_token_is_not_named_by_the_operator(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path / "data", jwt_create_users=True)) as server:
        headers = await server.bearer("root")
        token = mint_token(server.runtime.settings, NAME, SCOPES, lifetime_s=60, now=time.time(), client_id="test")
        own = await fetch(server.url, "GET", "/api/v1/account", {"Authorization": f"Bearer {token}"})
        shown = await fetch(server.url, "GET", f"/api/v1/users/{NAME}", headers)
        change = msgspec.json.encode({"is_name_confirmed": True})
        confirmed = await fetch(server.url, "PATCH", f"/api/v1/users/{NAME}", {**headers, **JSON}, change)

    assert own.status == 200
    assert shown.json()["is_name_confirmed"] is False
    assert confirmed.json()["is_name_confirmed"] is True


# -- roles that change -------------------------------------------------------------------------------------------------


async def call(server: LiveServer, method: str, path: str, body: object = None) -> HttpResponse:
    content = None if body is None else msgspec.json.encode(body)
    return await fetch(server.url, method, path, {**await server.bearer("ada"), **JSON}, content)


async def texts(server: LiveServer, query: str) -> list[str]:
    found = await call(server, "POST", "/api/v1/search", {"query": query})
    return [hit["snippet"] for hit in found.json()["results"]]


async def wait_until(is_reached: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_MAX_S):
        while not await is_reached():
            await asyncio.sleep(0.05)


def make_tea_folder(directory: Path) -> Path:
    folder = directory / "elsewhere"
    folder.mkdir()
    (folder / "Tea.md").write_text("# Tea\nSteep.")
    return folder


async def until_refused(server: LiveServer, path: str) -> None:
    """Waits until a followed source reports that its owner may not follow it any more."""

    async def is_reported() -> bool:
        return "not an administrator" in (await call(server, "GET", path)).json()["problem"]

    await wait_until(is_reported)


@pytest.mark.slow("waits for runs of followed sources")
async def test_path_of_a_former_administrator_is_not_read_any_more(tmp_path: Path) -> None:
    folder = make_tea_folder(tmp_path)
    async with live(make_settings(tmp_path / "data", follow_poll_s=0.1, **NO_RATE_LIMITS)) as server:
        user = await server.user("ada")
        added = await call(server, "POST", "/api/v1/follows", {"location": str(folder), "write_back": True})
        path = f"/api/v1/follows/{added.json()['id']}"

        async def has_text(query: str) -> bool:
            return bool(await texts(server, query))

        await wait_until(lambda: has_text("steep"))
        await server.runtime.registry.set_role(user.id, "writer")
        (folder / "Cup.md").write_text("# Cup\nPorcelain.")
        await call(server, "POST", f"{path}/run")
        await until_refused(server, path)
        unread = await texts(server, "porcelain")
        created = await call(server, "POST", "/api/v1/items/notes", {"title": "Kettle", "content": "Hot."})
        runs = server.runtime.following.runs
        await call(server, "POST", f"{path}/run")

        async def has_run() -> bool:
            return server.runtime.following.runs > runs

        await wait_until(has_run)
        files = sorted(file.name for file in folder.iterdir())
        await server.runtime.registry.set_role(user.id, "admin")
        await call(server, "POST", f"{path}/run")
        await wait_until(lambda: has_text("porcelain"))

    assert (unread, created.status, files) == ([], 201, ["Cup.md", "Tea.md"])


async def test_run_that_waited_for_its_turn_uses_the_role_of_now(tmp_path: Path) -> None:
    folder = make_tea_folder(tmp_path)
    async with live(make_settings(tmp_path / "data", import_jobs_max=1, follow_poll_s=0.1)) as server:
        slots, user = server.runtime.following._slots, await server.user("ada")
        async with slots.turn(UserId("another user")):
            added = await call(server, "POST", "/api/v1/follows", {"location": str(folder)})
            path = f"/api/v1/follows/{added.json()['id']}"

            async def is_waiting() -> bool:
                return slots.waiting > 0

            await wait_until(is_waiting)
            await server.runtime.registry.set_role(user.id, "writer")

        await until_refused(server, path)
        found = await texts(server, "steep")

    assert found == []


async def test_what_a_run_found_before_the_role_was_lowered_is_not_stored(tmp_path: Path) -> None:
    folder = make_tea_folder(tmp_path)
    async with live(make_settings(tmp_path / "data", import_jobs_max=1, follow_poll_s=0.1)) as server:
        slots, user = server.runtime.following._slots, await server.user("ada")
        slots._turn_s = 0.0  # the run lets another go on before it stores a batch
        async with slots.turn(UserId("another user")):
            added = await call(server, "POST", "/api/v1/follows", {"location": str(folder)})
            path = f"/api/v1/follows/{added.json()['id']}"

            async def is_waiting() -> bool:
                return slots.waiting > 0

            async def lower_the_role() -> None:
                async with slots.turn(UserId("third user")):
                    await wait_until(is_waiting)
                    await server.runtime.registry.set_role(user.id, "writer")

            await wait_until(is_waiting)
            lowering = asyncio.create_task(lower_the_role())
            await asyncio.sleep(0)
        await lowering
        await until_refused(server, path)
        found = await texts(server, "steep")

    assert found == []


@pytest.mark.slow("waits for runs of followed sources")
async def test_path_that_the_operator_follows_for_a_user_does_not_depend_on_the_role(tmp_path: Path) -> None:
    folder = make_tea_folder(tmp_path)
    async with live(make_settings(tmp_path / "data", follow_poll_s=0.1, **NO_RATE_LIMITS)) as server:
        user = await server.runtime.registry.add_user("ada", role="writer")
        await Follows(server.runtime.registry.database).add(
            FollowRecord(user_id=user.id, location=str(folder)), per_user_max=None
        )

        async def has_text() -> bool:
            return bool(await texts(server, "steep"))

        await wait_until(has_text)


# -- data of earlier versions ------------------------------------------------------------------------------------------


@pytest.mark.sqlite  # the schema of an earlier version is written to a file
async def test_names_and_followed_sources_of_earlier_versions_are_classified(tmp_path: Path) -> None:
    path = tmp_path / "control.db"
    users = [("operator", "", "writer"), ("person", "urn:x", "writer"), ("admin", "urn:x", "admin")]
    with closing(sqlite3.connect(path)) as db, db:
        for statement in CONTROL_SCHEMA.statements:
            db.execute(statement)
        for table, column in (("users", "named_by"), ("follows", "needs_admin")):
            db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        for name, issuer, role in users:
            values = (name, name, issuer, name, 0.0, 0, 0.0, "", role)
            columns = "id, name, issuer, subject, created_at, epoch, tokens_valid_after, files, role"
            db.execute(f"INSERT INTO users ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            for place, deployment in (("/a", None), ("/b", "tldw-1")):
                row = (f"{name}{place}", name, place, 0, 0, 0, 0.0, deployment)
                db.execute(
                    "INSERT INTO follows (id, user_id, location, keeps_deleted, writes_back, is_confined, created_at, "
                    "deployment) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    row,
                )
        db.execute(
            "INSERT INTO followed_deployments VALUES ('tldw-1', '/d', 'id', '{id}', 0, 0, NULL, 0.0, NULL, NULL)"
        )
        db.execute(f"PRAGMA user_version = {BEFORE_OWNERSHIP}")

    async with Registry.open(path) as registry:
        named_by = {user.name: user.named_by for user in await registry.list_users()}
        follows = {one.id: one.needs_admin for one in await Follows(registry.database).list()}

    assert named_by == {"operator": "operator", "person": "person", "admin": "operator"}
    assert follows == {
        "operator/a": False,
        "operator/b": False,
        "person/a": False,
        "admin/a": True,
        "admin/b": False,
    }
