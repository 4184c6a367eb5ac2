"""`jwt_secret` is replaced: tokens of earlier secrets work until they are removed from `jwt_previous_secrets`."""

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from auth.context import SCOPES
from auth.tokens import mint_token
from config.settings import Settings
from tests.live import JWT_SECRET, LiveServer, free_port, live, make_settings
from tests.server.clients import ModernClient

NEW_SECRET = "another test secret of more than 32 bytes"


def mint(settings: Settings, user: str) -> str:
    return mint_token(settings, user, SCOPES, lifetime_s=600, now=time.time(), client_id="test-client")


async def statuses(server: LiveServer, tokens: Mapping[str, str]) -> dict[str, int]:
    clients = {name: ModernClient(server, {"Authorization": f"Bearer {token}"}) for name, token in tokens.items()}
    return {name: (await client.request("tools/list")).status for name, client in clients.items()}


async def test_tokens_of_both_users_survive_a_new_secret(tmp_path: Path) -> None:
    port = free_port()
    old = make_settings(tmp_path, port=port)
    new = make_settings(tmp_path, port=port, jwt_secret=NEW_SECRET, jwt_previous_secrets=(JWT_SECRET,))
    unknown = msgspec.structs.replace(old, jwt_secret="a secret that was never used by this server")
    tokens = {
        "ada before": mint(old, "ada"),
        "bob after": mint(new, "bob"),
        "unknown": mint(unknown, "ada"),
    }

    async with live(new) as server:
        await server.user("ada")
        await server.user("bob")
        during = await statuses(server, tokens)
    async with live(msgspec.structs.replace(new, jwt_previous_secrets=())) as server:
        after = await statuses(server, tokens)

    assert during == {"ada before": 200, "bob after": 200, "unknown": 401}
    assert after == {"ada before": 401, "bob after": 200, "unknown": 401}
