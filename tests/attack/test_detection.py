"""What `make attack` looks for would be found: each of its parts is tried on something that it must report."""

import asyncio
import base64
import io
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from msgspec import Struct

from auth.context import SCOPES
from server.app import build_app
from server.http_services import build_http_services
from server.metrics import Metrics
from server.protocol.call import Call
from server.protocol.catalog import Tool
from server.rest.routes import rest_operations
from tests.attack.app_client import AttackRequest, InProcessClient
from tests.attack.cross_tenant import CrossTenantAttack, count_visible
from tests.attack.follows import FollowAttack
from tests.attack.forged_tokens import TokenResult, attack_issuer
from tests.attack.hostile_files import FileResult, attack_with_files, has_text, import_file
from tests.attack.leak_detector import LeakDetector, new_canary
from tests.attack.memory import MEGABYTE, attack_with_unread_responses, attacked_process
from tests.attack.plugins import attack_plugins
from tests.attack.roles import Credential, RolesResult, try_cell
from tests.attack.run import AttackedServer, open_attacked_server
from tests.attack.sharing import SharingAttack
from tests.attack.slow_clients import attack_with_slow_clients
from tests.attack.surface import METHODS, RouteTarget, read_surface
from tests.attack.tenants import own_data, plant_tenant
from tests.auth.issuers import hs256
from tests.live import NO_RATE_LIMITS, live, make_settings
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import rest_client_of
from tests.sources.importers.office_files import WORD, word

pytestmark = pytest.mark.slow("attacks a server")

CALLS = 300


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AttackedServer]:
    async with open_attacked_server(tmp_path_factory.mktemp("attack")) as opened:
        yield opened


# -- cross-tenant calls ------------------------------------------------------------------------------------------------


class CredentialOfVictim:
    """Sends requests as a server would see them that confuses the two users."""

    def __init__(self, server: AttackedServer) -> None:
        self._server = server

    async def send(self, request: AttackRequest, credential: Mapping[str, str]) -> HttpResponse:
        other = next(tenant for tenant in self._server.tenants if tenant.credential != credential)
        return await self._server.client.send(request, other.credential)


async def test_server_that_confuses_users_would_be_found(tmp_path: Path) -> None:
    async with open_attacked_server(tmp_path) as server:  # of its own, because the calls change the data
        attack = CrossTenantAttack(CredentialOfVictim(server), server.surface, server.tenants, server.detector, seed=7)
        before = [await own_data(server.api, tenant) for tenant in server.tenants]
        result = await attack.run(CALLS, 60, workers=4)
        after = [await own_data(server.api, tenant) for tenant in server.tenants]

    assert before != after
    assert len(result.leaks) > CALLS / 20
    assert any(leak.startswith("a stranger") for leak in result.leaks)
    assert any(leak.startswith("ben got data of ada") for leak in result.leaks)


async def test_calls_reach_the_data_of_their_owner(server: AttackedServer) -> None:
    visible = await count_visible(server.client, server.surface, server.tenants, server.detector, CALLS)

    assert visible > CALLS / 5


class NoArguments(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Remark(Struct, frozen=True):
    text: str


async def test_leak_of_a_tool_added_later_is_found(tmp_path: Path) -> None:
    """The tools are those that the server lists, so a new one is attacked without a change of the attack."""
    remarks: list[str] = []

    async def handle(call: Call, arguments: NoArguments) -> Remark:
        return Remark(remarks[0])

    tool = Tool(name="latest_remark", title="Remark", description="Returns it.", input=NoArguments, handler=handle)
    async with live(make_settings(tmp_path, **NO_RATE_LIMITS), extend=lambda catalog: catalog.add_tool(tool)) as opened:
        api = rest_client_of(opened)
        ada, ben = [await plant_tenant(api, name) for name in ("ada", "ben")]
        remarks.append(f"Ada said {ada.canary}")
        detector = LeakDetector({"ada": ada.canary, "ben": ben.canary})
        client = InProcessClient(build_app(opened.runtime, Metrics()))
        attack = CrossTenantAttack(client, await read_surface(api, "ada"), (ada, ben), detector, seed=7)
        result = await attack.run(10 * CALLS, 60, workers=4)  # each tool gets a small share

    assert result.leaks
    assert all(leak.startswith("ben got data of ada: latest_remark") for leak in result.leaks)


async def test_change_of_foreign_data_would_be_found(server: AttackedServer) -> None:
    cyd = server.tenants[2]
    before = await own_data(server.api, cyd)
    assert await own_data(server.api, cyd) == before
    assert all(cyd.canary.encode() in data for data in before[:-1])  # the last is the session
    await server.api.request("DELETE", "/mcp", "cyd", {"Mcp-Session-Id": cyd.session_id})

    assert await own_data(server.api, cyd) != before


async def test_every_protocol_method_is_attacked(server: AttackedServer) -> None:
    table = server.live.runtime.dispatcher._methods
    known = {name for methods in table.values() for name in methods}

    assert set(METHODS) | {"tools/call"} == known


async def test_every_route_of_the_api_document_is_attacked(server: AttackedServer) -> None:
    document = (await server.api.get("/openapi.json", None)).json()
    operations = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    attacked = {(target.method, target.path) for target in server.surface.targets if isinstance(target, RouteTarget)}

    assert operations < attacked


# -- the detector ------------------------------------------------------------------------------------------------------


def packed(text: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.md", text)
    return buffer.getvalue()


async def test_canary_is_found_in_any_form() -> None:
    canary = new_canary("ada")
    detector = LeakDetector({"ada": canary, "ben": new_canary("ben")})
    forms = [f"xx {canary} yy".encode(), canary.upper().encode(), packed(canary)]
    forms += [base64.b64encode(b"x" * offset + canary.encode() + b"yy") for offset in range(3)]

    assert all(detector.owners_in(form, "ben") == {"ada"} for form in forms)
    assert all(detector.owners_in(form, None) == {"ada"} for form in forms)
    assert all(detector.owners_in(form, "ada") == set() for form in forms)
    assert detector.owners_in(f"{canary[:20]} {canary[20:]}".encode(), "ben") == set()


# -- the other parts ---------------------------------------------------------------------------------------------------


async def test_accepted_token_would_be_found(tmp_path: Path) -> None:
    issuer, result = hs256(), TokenResult(0, [], [])

    await attack_issuer(issuer, tmp_path, [("a valid one", issuer.token()), ("a forged one", "x.y.z")], result)

    assert result == TokenResult(2, ["HS256: a valid one"], [])


async def test_client_that_is_not_closed_would_be_found(server: AttackedServer) -> None:
    ada, ben, _ = server.tenants

    result = await attack_with_slow_clients(server.live.url, ada, ben, copies=1, limit_s=0.5)

    assert "1 that sends nothing" in result.open_clients


async def test_wrong_decision_about_a_role_would_be_found(server: AttackedServer) -> None:
    runtime = server.live.runtime
    [list_users] = [one for one in rest_operations(runtime, build_http_services(runtime)) if one.id == "list_users"]
    search = runtime.dispatcher.catalog.tools["knowledge_search"]
    bearer = await server.live.bearer("dora")

    async def headers() -> Mapping[str, str]:
        return bearer

    # The token has all scopes, so that a server that decides as described here would be wrong.
    for credential in (
        Credential(name="revoked", headers=headers, is_valid=False),
        Credential(name="without scopes", headers=headers),
        Credential(name="restricted", headers=headers, scopes=frozenset(SCOPES), profile="write"),
    ):
        result = RolesResult(1, 1, 1, 0, Counter(), [])
        for target in (list_users, search):
            await try_cell(server.api, target, credential, result)
        assert len(result.wrong) == (1 if credential.name == "restricted" else 2)
    correct = Credential(name="a new token", headers=headers, scopes=frozenset(SCOPES), is_recent_sign_in=True)
    result = RolesResult(1, 1, 1, 0, Counter(), [])
    await try_cell(server.api, list_users, correct, result)
    assert result.wrong == []


async def test_path_that_can_be_followed_would_be_found(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path / "data", follow_roots=(str(tmp_path),), **NO_RATE_LIMITS)) as opened:
        attack = FollowAttack(opened, tmp_path)
        await attack.plant()
        await attack.follow_forbidden_locations()

    assert any(leak.startswith("ada follows") and "ben" in leak for leak in attack.result.leaks)


async def test_source_that_mixes_users_would_be_found(tmp_path: Path) -> None:
    mix = "SEEN = globals().setdefault('USERS', []); SEEN.append(context.user_id); "
    row = "replace(self.item('monday'), snippet=f'rain {SEEN}')"
    rows = f"SearchResponse(results=({row},), has_more=False, next_offset=None, total_estimated=1)"
    result = await attack_plugins(tmp_path, 2, {"mixes": f"{mix}return hits_from_response({rows})"})

    assert any(leak.startswith("ben got something of ada") for leak in result.leaks)


async def test_memory_of_unread_responses_would_be_found(tmp_path: Path) -> None:
    async with attacked_process(tmp_path) as server:
        part = await attack_with_unread_responses(server, 3, growth_max_bytes=MEGABYTE)

    assert part.is_too_much


async def test_every_file_is_followed_to_its_end(server: AttackedServer, tmp_path: Path) -> None:
    ben = server.tenants[1]

    result = await attack_with_files(server.client, ben, server.detector, tmp_path, files_max=3, deadline_s=60)

    assert (result.files, result.leaks, result.failures) == (3, [], [])


async def test_imported_secret_would_be_found(server: AttackedServer) -> None:
    ben, secret, result = server.tenants[1], new_canary("server"), FileResult(0, 0, [], [])
    assert not await has_text(server.client, ben, secret)

    await import_file(server.client, ben, server.detector, "a.docx", word(WORD.replace("Low water", secret)), result)

    assert result.imported == 1
    assert await has_text(server.client, ben, secret)


# -- sharing -----------------------------------------------------------------------------------------------------------


async def test_responses_from_before_a_revocation_are_reported(tmp_path: Path) -> None:
    class StaleClient:
        """Answers with what was once shared, and with what never was."""

        def __init__(self, canaries: Mapping[str, str]) -> None:
            self._body = " ".join(canaries.values()).encode()

        async def send(self, request: AttackRequest, credential: Mapping[str, str]) -> HttpResponse:
            await asyncio.sleep(0.01)
            return HttpResponse(200, (), self._body)

    async with live(make_settings(tmp_path / "sharing", **NO_RATE_LIMITS)) as server:
        attack = SharingAttack(rest_client_of(server))
        await attack.plant()
        attack._client = StaleClient(attack._canaries)
        result = await attack.run(60, 60.0, 2)

    found = {leak.partition(" by ")[0] for leak in result.leaks}
    assert {"private", "human", "stranger"} <= found
    assert found & {"crew", "tag", "space"}  # after revocation
