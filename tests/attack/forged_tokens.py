"""Forged tokens over HTTP: the corpus of `tests.auth.attack_tokens` for every kind of issuer, on MCP and on REST."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from server.app import build_app
from server.lifespan import open_runtime
from server.metrics import Metrics
from tests.attack.app_client import AttackRequest, InProcessClient
from tests.auth.attack_server import ISSUERS, open_server
from tests.auth.attack_tokens import attacks
from tests.auth.issuers import Issuer
from tests.live import NO_RATE_LIMITS, make_settings
from tests.server.clients import message, modern_headers, modern_params

_REQUESTS = (
    AttackRequest(
        "tools/list",
        "POST",
        "/mcp",
        modern_headers("tools/list", {}),
        msgspec.json.encode(message("tools/list", modern_params(), 1)),
    ),
    AttackRequest("list_models", "GET", "/v1/models"),
)


class TokenResult(Struct):
    """`accepted` names the forged tokens that were accepted; `refused_valid` the issuers whose valid token was not."""

    tokens: int
    accepted: list[str]
    refused_valid: list[str]


async def attack_with_tokens(directory: Path, issuers_max: int = len(ISSUERS)) -> TokenResult:
    result = TokenResult(0, [], [])
    for make_issuer in ISSUERS[:issuers_max]:
        issuer = make_issuer()
        folder = directory / issuer.algorithm
        folder.mkdir()
        await attack_issuer(issuer, folder, attacks(issuer), result)
    return result


async def attack_issuer(
    issuer: Issuer, directory: Path, corpus: Sequence[tuple[str, str]], result: TokenResult
) -> None:
    settings = make_settings(directory / "data", **NO_RATE_LIMITS)
    async with (
        open_server(issuer, directory) as authenticator,
        open_runtime(settings, authenticator=authenticator) as runtime,
    ):
        client = InProcessClient(build_app(runtime, Metrics()))
        if await _statuses(client, issuer.token()) != {200}:
            result.refused_valid.append(issuer.algorithm)
        for name, token in corpus:
            result.tokens += 1
            if await _statuses(client, token) != {401}:
                result.accepted.append(f"{issuer.algorithm}: {name}")


async def _statuses(client: InProcessClient, token: str) -> set[int]:
    """Returns the status codes of all requests with this token."""
    credential = {"Authorization": f"Bearer {token}"}
    return {(await client.send(request, credential)).status for request in _REQUESTS}
