"""Groups, invitations and shares over REST: what each credential can do, and what is recorded of it."""

import asyncio
import io
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from auth.context import READ, SCOPES, WRITE
from tests.server.http_client import HttpResponse
from tests.server.in_process import call_app
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.server.rest.test_account import key_of, message_of, send

GROUPS, SHARES, INVITATIONS = "/api/v1/groups", "/api/v1/shares", "/api/v1/group-invitations"
RECIPES = {"by": "tag", "value": "recipes"}


class People:
    """The people of a test, each with a key."""

    def __init__(self, api: RestClient) -> None:
        self.api = api
        self.keys: dict[str, dict[str, str]] = {}

    async def add(self, *names: str) -> None:
        for name in names:
            self.keys[name] = await key_of(self.api, name, READ, WRITE)

    async def send(self, name: str, method: str, path: str, body: Any = None) -> HttpResponse:
        return await send(self.api, self.keys[name], method, path, body)

    async def done(self, name: str, method: str, path: str, body: Any = None) -> Any:
        response = await self.send(name, method, path, body)
        assert response.status in (200, 201), response.body
        return response.json()

    async def libraries(self, name: str) -> list[tuple[str, str]]:
        listed = (await self.done(name, "GET", "/api/v1/libraries"))["libraries"]
        return [(one["name"], one["role"]) for one in listed]


@pytest.fixture
async def people(api: RestClient) -> People:
    people = People(api)
    await people.add("ada", "ben", "cy")
    return people


async def test_people_share_a_library_in_a_group(people: People) -> None:
    created = await people.done("ada", "POST", GROUPS, {"name": "team"})
    assert (created["role"], created["members"]) == ("manager", 1)
    invitation = await people.done("ada", "POST", f"{GROUPS}/team/invitations", {"role": "writer", "person": "ben"})
    assert (invitation["person"], invitation["link"]) == ("ben", "")
    [incoming] = (await people.done("ben", "GET", INVITATIONS))["invitations"]
    assert (incoming["id"], incoming["group"], incoming["created_by"]) == (invitation["id"], "team", "ada")
    await people.done("ben", "POST", f"{INVITATIONS}/accept", {"invitation": incoming["id"]})
    by_link = await people.done("ada", "POST", f"{GROUPS}/team/invitations", {})
    await people.done("cy", "POST", f"{INVITATIONS}/accept", {"invitation": by_link["link"]})

    members = (await people.done("cy", "GET", f"{GROUPS}/team/members"))["members"]
    assert [(one["name"], one["role"]) for one in members] == [("ada", "manager"), ("ben", "writer"), ("cy", "reader")]
    assert await people.libraries("ben") == [("own", "owner"), ("team", "writer")]
    await people.done("ada", "PUT", f"{GROUPS}/team/members/cy", {"role": "writer"})
    await people.done("ada", "PATCH", f"{GROUPS}/team", {"new_name": "crew"})
    assert await people.libraries("cy") == [("own", "owner"), ("crew", "writer")]
    await people.done("ada", "DELETE", f"{GROUPS}/crew/members/ben")
    await people.done("cy", "POST", f"{GROUPS}/crew/leave", {})
    assert await people.libraries("ben") == await people.libraries("cy") == [("own", "owner")]
    assert (await people.send("ada", "POST", f"{GROUPS}/crew/leave", {})).status == 409


async def test_people_share_a_part_of_their_library(people: People) -> None:
    share = await people.done("ada", "POST", SHARES, {**RECIPES, "to": "ben", "name": "cooking"})
    assert await people.libraries("ben") == [("own", "owner"), ("ada/cooking", "reader")]
    assert (await people.done("cy", "GET", SHARES))["shares"] == []
    assert (await people.done("ben", "GET", SHARES))["shares"] == [share]
    # The tool lists the same.
    ben = await people.api.library_user("ben")
    called = await ben.request("tools/call", name="libraries_list", arguments={})
    assert called["structuredContent"]["libraries"] == [
        {"name": "own", "role": "owner"},
        {
            "name": "ada/cooking",
            "role": "reader",
            "handle": share["id"],
            "shares_by": "tag",
            "shares_value": "recipes",
        },
    ]
    assert (await people.send("cy", "DELETE", f"{SHARES}/{share['id']}")).status == 404
    await people.done("ada", "DELETE", f"{SHARES}/{share['id']}")
    assert await people.libraries("ben") == [("own", "owner")]


async def test_group_of_others_is_the_same_as_none(people: People) -> None:
    await people.done("ada", "POST", GROUPS, {"name": "team"})
    for method, path, body in (
        ("GET", "/members", None),
        ("GET", "/invitations", None),
        ("PATCH", "", {"new_name": "crew"}),
        ("POST", "/leave", {}),
        ("POST", "/invitations", {}),
        ("PUT", "/members/ben", {"role": "manager"}),
        ("DELETE", "/members/ada", None),
    ):
        foreign = await people.send("ben", method, f"{GROUPS}/team{path}", body)
        absent = await people.send("ben", method, f"{GROUPS}/none{path}", body)
        assert (foreign.status, absent.status) == (404, 404), (method, path)
        assert foreign.body.replace(b"team", b"none") == absent.body
    assert (await people.send("ben", "POST", SHARES, {**RECIPES, "to": "team"})).status == 404


async def test_credentials_of_agents_change_nothing(people: People) -> None:
    await people.done("ada", "POST", GROUPS, {"name": "team"})
    invitation = await people.done("ben", "POST", GROUPS, {"name": "crew"})
    assert invitation["name"] == "crew"
    restricted = [
        await key_of(people.api, "ada", READ, WRITE, profile="full"),
        await key_of(people.api, "ada", READ, WRITE, sources=["notes"]),
        await key_of(people.api, "ada", READ, WRITE, libraries=[]),
    ]
    for key in restricted:
        for method, path, body in (
            ("POST", GROUPS, {"name": "mine"}),
            ("PATCH", f"{GROUPS}/team", {"new_name": "x"}),
            ("POST", f"{GROUPS}/team/invitations", {}),
            ("PUT", f"{GROUPS}/team/members/ada", {"role": "writer"}),
            ("POST", f"{INVITATIONS}/accept", {"invitation": "i_x"}),
            ("POST", SHARES, {**RECIPES, "to": "ben"}),
            ("DELETE", f"{SHARES}/s_x", None),
            ("POST", "/api/v1/keys", {"name": "more"}),
        ):
            assert (await send(people.api, key, method, path, body)).status == 403, (method, path)
    # A key is not enough to delete a library.
    assert (await people.send("ada", "DELETE", f"{GROUPS}/team")).status == 403


async def test_deleted_group_has_no_library_and_no_members(people: People) -> None:
    api = people.api
    team = await people.done("ada", "POST", GROUPS, {"name": "team"})
    link = (await people.done("ada", "POST", f"{GROUPS}/team/invitations", {"uses": 2}))["link"]
    await people.done("ben", "POST", f"{INVITATIONS}/accept", {"invitation": link})
    record = await api.server.runtime.registry.owner_by_name("team")
    assert record is not None

    deleted = await send(api, await api.server.bearer("ada"), "DELETE", f"{GROUPS}/{team['handle']}")

    assert deleted.status == 200
    assert await people.libraries("ben") == [("own", "owner")]
    assert await api.server.runtime.registry.user_by_id(record.id) is None
    assert not api.server.runtime.data_root.paths_of(record.id).media.exists()
    assert (await people.send("cy", "POST", f"{INVITATIONS}/accept", {"invitation": link})).status == 404


@pytest.mark.parametrize(
    ("allowed", "statuses"), [("everyone", (201, 201)), ("admins", (403, 201)), ("off", (403, 403))]
)
async def test_setting_says_who_creates_groups(tmp_path: Path, allowed: str, statuses: tuple[int, int]) -> None:
    async with open_rest_client(tmp_path, groups=allowed) as api:
        writer, admin = await key_of(api, "ada", READ, WRITE), await key_of(api, "ada", *SCOPES)
        reader = await key_of(api, "ada", READ)
        found = [
            (await send(api, key, "POST", GROUPS, {"name": name})).status
            for key, name in ((writer, "one"), (admin, "two"))
        ]
        assert tuple(found) == statuses
        assert (await send(api, reader, "POST", GROUPS, {"name": "three"})).status == 403
        other = await send(api, admin, "POST", GROUPS, {"name": "four", "manager": "ben"})
        assert other.status in (400, 403)


async def test_key_is_restricted_to_libraries_of_its_owner(people: People) -> None:
    for group in ("team", "crew"):
        await people.done("ada", "POST", GROUPS, {"name": group})
    foreign = await people.done("ben", "POST", GROUPS, {"name": "foreign"})

    async def libraries(*names: str) -> list[str]:
        key = await people.done("ada", "POST", "/api/v1/keys", {"name": "agent", "libraries": names})
        bearer = {"Authorization": f"Bearer {key['secret']}"}
        listed = (await send(people.api, bearer, "GET", "/api/v1/libraries")).json()["libraries"]
        return [one["name"] for one in listed]

    assert await libraries("TEAM") == ["own", "team"]
    assert await libraries() == await libraries("-") == ["own"]
    for name in ("foreign", foreign["handle"], "nothing"):
        refused = await people.send("ada", "POST", "/api/v1/keys", {"name": "x", "libraries": [name]})
        assert (refused.status, refused.json()["error"]["message"]) == (404, f"library {name!r} not found")


async def test_events_of_groups_and_shares_are_recorded_without_secrets(own_api: RestClient) -> None:
    people = People(own_api)
    await people.add("ada", "ben", "cy")
    await people.done("ada", "POST", GROUPS, {"name": "team"})
    link = (await people.done("ada", "POST", f"{GROUPS}/team/invitations", {}))["link"]
    named = await people.done("ada", "POST", f"{GROUPS}/team/invitations", {"person": "cy"})
    await people.done("ben", "POST", f"{INVITATIONS}/accept", {"invitation": link})
    await people.done("cy", "POST", f"{INVITATIONS}/decline", {"invitation": named["id"]})
    again = await people.done("ada", "POST", f"{GROUPS}/team/invitations", {"person": "cy"})
    await people.done("ada", "DELETE", f"{GROUPS}/team/invitations/{again['id']}")
    await people.done("ada", "PUT", f"{GROUPS}/team/members/ben", {"role": "writer"})
    await people.done("ada", "PATCH", f"{GROUPS}/team", {"new_name": "crew"})
    share = await people.done("ben", "POST", SHARES, {**RECIPES, "to": "crew"})
    await people.done("ben", "DELETE", f"{SHARES}/{share['id']}")
    await people.done("ben", "POST", f"{GROUPS}/crew/leave", {})
    bearer = await own_api.server.bearer("ada")
    assert (await send(own_api, bearer, "DELETE", f"{GROUPS}/crew")).status == 200

    events = (await send(own_api, bearer, "GET", "/api/v1/audit?limit=100")).json()["events"]
    ours = [(one["action"], one["user"]) for one in reversed(events) if one["action"].startswith(("group.", "share."))]
    assert ours == [
        ("group.create", "ada"),
        ("group.invite", "ada"),
        ("group.invite", "ada"),
        ("group.join", "ben"),
        ("group.decline", "cy"),
        ("group.invite", "ada"),
        ("group.invite_revoked", "ada"),
        ("group.role", "ben"),
        ("group.rename", "ada"),
        ("share.create", "ben"),
        ("share.delete", "ben"),
        ("group.leave", "ben"),
        ("group.delete", "ada"),
    ]
    assert link.rpartition("/")[2] not in repr(events)


# -- deletion of a person ----------------------------------------------------------------------------------------------


async def test_deleted_person_leaves_no_library_behind_unnoticed(own_api: RestClient) -> None:
    people = People(own_api)
    await people.add("ada", "ben", "cy")
    for name in ("alone", "team"):
        await people.done("ben", "POST", GROUPS, {"name": name})
    link = (await people.done("ben", "POST", f"{GROUPS}/team/invitations", {"role": "writer"}))["link"]
    await people.done("cy", "POST", f"{INVITATIONS}/accept", {"invitation": link})
    await people.done("ben", "POST", SHARES, {**RECIPES, "to": "cy"})
    admin = await own_api.server.bearer("ada")
    alone = await own_api.server.runtime.registry.owner_by_name("alone")

    refused = await send(own_api, admin, "DELETE", "/api/v1/users/ben?purge=true")
    assert (refused.status, "only member of alone" in refused.json()["error"]["message"]) == (409, True)
    # Nothing was deleted.
    assert await people.libraries("ben") == [("own", "owner"), ("alone", "manager"), ("team", "manager")]
    assert (await send(own_api, admin, "DELETE", "/api/v1/users/ben?purge=true&delete_groups=true")).status == 200

    assert await people.libraries("cy") == [("own", "owner"), ("team", "manager")]
    assert alone is not None
    assert await own_api.server.runtime.registry.user_by_id(alone.id) is None
    events = (await send(own_api, admin, "GET", "/api/v1/audit?limit=100")).json()["events"]
    details = {one["action"]: one["detail"] for one in reversed(events)}
    assert (details["group.delete"], details["group.role"]) == ("alone", "team manager, after ben")


async def test_own_account_with_a_group_needs_a_decision(api: RestClient) -> None:
    for name in ("ada", "cy"):
        await key_of(api, name, READ)
    bearer = await api.server.bearer("ada")
    assert (await send(api, bearer, "POST", GROUPS, {"name": "alone"})).status == 201
    preview = (await send(api, bearer, "POST", "/api/v1/account/deletion", {})).json()
    assert preview["groups"] == ["alone"]
    path = f"/api/v1/account?token={preview['token']}"
    assert (await send(api, bearer, "DELETE", path)).status == 409
    # The token was not used up.
    assert (await send(api, bearer, "DELETE", f"{path}&delete_groups=true")).status == 200
    assert [one.name for one in await api.server.runtime.registry.list_owners()] == ["cy"]


async def test_disabled_member_loses_access_at_once(people: People) -> None:
    await people.done("ada", "POST", GROUPS, {"name": "team"})
    link = (await people.done("ada", "POST", f"{GROUPS}/team/invitations", {}))["link"]
    await people.done("ben", "POST", f"{INVITATIONS}/accept", {"invitation": link})
    registry = people.api.server.runtime.registry
    await registry.disable_user((await people.api.server.user("ben")).id)
    assert (await people.send("ben", "GET", "/api/v1/libraries")).status == 401


# -- whole libraries of groups -----------------------------------------------------------------------------------------


async def test_managers_export_import_and_follow_for_their_group(people: People) -> None:
    api, notes = people.api, b"# Halley\n\nA comet.\n"
    await people.done("ada", "POST", GROUPS, {"name": "team"})
    link = (await people.done("ada", "POST", f"{GROUPS}/team/invitations", {"role": "writer"}))["link"]
    await people.done("ben", "POST", f"{INVITATIONS}/accept", {"invitation": link})
    binary = {"Content-Type": "application/octet-stream"}

    async def start(name: str) -> HttpResponse:
        path = "/api/v1/import?name=halley.md&library=team"
        return await call_app(api.app, "POST", path, {**people.keys[name], **binary}, notes)

    # A writer, and someone who is not in the group.
    assert [(await start(name)).status for name in ("ben", "cy")] == [403, 404]
    for path in ("/api/v1/export?library=team", "/api/v1/import?library=team", "/api/v1/follows?library=team"):
        assert [(await people.send(name, "GET", path)).status for name in ("ben", "cy")] == [403, 404], path
    job = (await start("ada")).json()
    while job["state"] in ("waiting", "running"):
        await asyncio.sleep(0.05)
        job = await people.done("ada", "GET", f"/api/v1/import/{job['id']}?library=team")
    assert (job["state"], job["summary"]["failed_files"]) == ("done", 0)
    assert (await people.send("ada", "GET", f"/api/v1/import/{job['id']}")).status == 404
    for library, expected in (("?library=team", True), ("", False)):
        archive = (await people.send("ada", "GET", f"/api/v1/export{library}")).body
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            assert (b"A comet." in b"".join(packed.read(name) for name in packed.namelist())) == expected
    # A path needs the same permission as in one's own library, and an administrator has none for a group.
    admin = await key_of(api, "ada", *SCOPES)
    refused = await send(api, admin, "POST", "/api/v1/follows?library=team", {"location": "/srv/notes"})
    assert refused.status in (400, 403)
    followed = {"location": "https://harbour.invalid/"}
    added = await people.send("ada", "POST", "/api/v1/follows?library=team", followed)
    assert added.status == 201
    assert (await people.done("ada", "GET", "/api/v1/follows"))["follows"] == []
    assert len((await people.done("ada", "GET", "/api/v1/follows?library=team"))["follows"]) == 1


async def test_restricted_key_sees_nothing_of_other_groups_and_shares(people: People) -> None:
    for group in ("team", "crew"):
        await people.done("ada", "POST", GROUPS, {"name": group})
    given = await people.done("ada", "POST", SHARES, {**RECIPES, "to": "cy"})
    received = await people.done("ben", "POST", SHARES, {**RECIPES, "to": "ada"})
    [crew, team] = (await people.done("ada", "GET", GROUPS))["groups"]
    invitation = await people.done("cy", "POST", GROUPS, {"name": "guild"})
    await people.done("cy", "POST", f"{GROUPS}/{invitation['name']}/invitations", {"person": "ada"})
    key = await key_of(people.api, "ada", READ, WRITE, libraries=[team["handle"]])

    async def get(path: str) -> HttpResponse:
        return await send(people.api, key, "GET", path)

    assert (await get(GROUPS)).json()["groups"] == [team]
    assert (await get(SHARES)).json()["shares"] == [given]
    assert (await get(f"{GROUPS}/team/members")).status == (await get(f"{GROUPS}/team/invitations")).status == 200
    for name in ("crew", crew["handle"]):
        for path in ("members", "invitations"):
            missing = await get(f"{GROUPS}/{name}/{path}")
            assert (missing.status, message_of(missing)) == (404, f"group '{name}' not found")
    assert received["id"] not in (await get(SHARES)).body.decode()
    assert (await get(INVITATIONS)).json()["invitations"] == []


async def test_links_between_notes_of_a_group_name_its_library(people: People) -> None:
    group = await people.done("ada", "POST", GROUPS, {"name": "team"})
    texts = {"Harbour": "[[Crane]] and [[Quay]]", "Crane": "on the [[Quay]]", "Quay": "of stone"}
    uris = {}
    for title, content in texts.items():
        note = {"title": title, "content": content, "library": "team"}
        uris[title] = (await people.done("ada", "POST", "/api/v1/items/notes", note))["uri"]
    assert uris["Quay"].endswith(f"?library={group['handle']}")

    links = await people.done("ada", "GET", f"/api/v1/items/links?uri={quote(uris['Harbour'])}")

    assert links["between"] == [{"source": uris["Crane"], "target": uris["Quay"]}]
