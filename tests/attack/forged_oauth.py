"""Forged and altered OAuth credentials: access tokens on MCP and REST, codes and refresh tokens at the token endpoint.

Every alteration starts from a credential that works, or did before it was withdrawn, so that almost all of it is right.
"""

import base64
import random
import string
import time
from collections.abc import Iterator
from itertools import chain, cycle, islice
from pathlib import Path
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from auth.context import SCOPES
from auth.oauth.clients import OAuthClients
from auth.oauth.grants import ACCESS_TOKEN, CODE, REFRESH_TOKEN, GrantRequest, OAuthGrants, TokenResource
from auth.oauth.tokens import IssuedTokens, OAuthTokens, TokenRequest
from auth.registry import UserRecord
from server.app import build_app
from server.lifespan import open_runtime
from server.metrics import Metrics
from server.runtime import Runtime
from tests.attack.app_client import AttackRequest, InProcessClient
from tests.live import NO_RATE_LIMITS, make_settings
from tests.server.clients import message, modern_headers, modern_params
from tests.server.oauth.oauth_client import FORM, REDIRECT_URI, challenge_of

_ALPHABET = string.ascii_letters + string.digits + "-_"
_VERIFIER = "the verifier of every code of this attack, 43 or more".replace(" ", "-").replace(",", "")
_LIST_TOOLS = AttackRequest(
    "tools/list",
    "POST",
    "/mcp",
    modern_headers("tools/list", {}),
    msgspec.json.encode(message("tools/list", modern_params(), 1)),
)
_LIST_MODELS = AttackRequest("list_models", "GET", "/v1/models")


class ForgedOAuthResult(Struct):
    """`accepted` names the forged credentials that were accepted, and `refused_valid` the valid ones that were not."""

    credentials: int
    accepted: list[str]
    refused_valid: list[str]


class Loot(Struct, frozen=True):
    """What an attacker starts from: valid credentials, and credentials that were withdrawn."""

    client_id: str
    access: list[str]
    codes: list[str]
    refresh: list[str]
    withdrawn_access: list[str]
    withdrawn_refresh: list[str]


async def attack_oauth(directory: Path, credentials: int) -> ForgedOAuthResult:
    """Sends `credentials` forged ones: three of five are access tokens, the others codes and refresh tokens."""
    limits = {"rate_oauth_per_minute": 0, **NO_RATE_LIMITS}
    # Valid codes must outlive the attack, which takes more than ten minutes on PostgreSQL on a busy machine.
    settings = make_settings(directory / "oauth", oauth_code_ttl_s=86_400, **limits)
    result = ForgedOAuthResult(0, [], [])
    async with open_runtime(settings) as runtime:
        client = InProcessClient(build_app(runtime, Metrics()))
        loot = await _plant(runtime)
        for number, (name, token) in enumerate(islice(_access_tokens(loot), credentials * 3 // 5)):
            request = _LIST_TOOLS if number % 2 else _LIST_MODELS
            response = await client.send(request, {"Authorization": f"Bearer {token}"})
            _count(result, name, is_refused=response.status == 401)
        for name, values in islice(_token_requests(loot), credentials * 2 // 5):
            response = await client.send(_token_request(loot.client_id, values), {})
            _count(result, name, is_refused=response.status in (400, 401))
        await _check_valid(client, loot, result)
    return result


def _count(result: ForgedOAuthResult, name: str, *, is_refused: bool) -> None:
    result.credentials += 1
    if not is_refused:
        result.accepted.append(name)


async def _check_valid(client: InProcessClient, loot: Loot, result: ForgedOAuthResult) -> None:
    """The valid credentials still work, so the attack was refused for what it changed."""
    for token in loot.access:
        response = await client.send(_LIST_MODELS, {"Authorization": f"Bearer {token}"})
        if response.status != 200:
            result.refused_valid.append("access token")
    exchanges = [
        *(("code", {"grant_type": "authorization_code", "code": code}) for code in loot.codes),
        *(("refresh token", {"grant_type": "refresh_token", "refresh_token": token}) for token in loot.refresh),
    ]
    for name, values in exchanges:
        if (await client.send(_token_request(loot.client_id, values), {})).status != 200:
            result.refused_valid.append(name)


def _token_request(client_id: str, values: dict[str, str]) -> AttackRequest:
    body = urlencode({"client_id": client_id, "code_verifier": _VERIFIER, **values}).encode()
    return AttackRequest("token", "POST", "/token", FORM, body)


# -- credentials --------------------------------------------------------------------------------------------------


async def _plant(runtime: Runtime) -> Loot:
    registry, settings = runtime.registry, runtime.settings
    clients = OAuthClients(registry.database, settings)
    document = {"client_name": "App", "redirect_uris": [REDIRECT_URI]}
    client, _ = await clients.add(document, is_confidential=False)
    issuer = _Issuer(runtime, client.id)
    users = [await registry.add_user(name) for name in ("ada", "bob", "gone")]
    valid = [await issuer.tokens(user) for user in users[:2]]
    revoked, of_disabled = await issuer.tokens(users[0]), await issuer.tokens(users[2])
    await issuer.grants.revoke(users[0].id, revoked.grant.id)
    await registry.disable_user(users[2].id)
    expired = await issuer.tokens(users[1])
    await registry.database.write(
        lambda db: db.execute("UPDATE oauth_tokens SET expires_at = 1 WHERE grant_id = ?", (expired.grant.id,))
    )
    withdrawn = [revoked, of_disabled, expired]
    return Loot(
        client.id,
        [tokens.access_token for tokens in valid],
        [await issuer.code(user) for user in users[:2]],
        [tokens.refresh_token for tokens in valid],
        [tokens.access_token for tokens in withdrawn],
        [tokens.refresh_token for tokens in withdrawn],
    )


class _Issuer:
    def __init__(self, runtime: Runtime, client_id: str) -> None:
        database, settings = runtime.registry.database, runtime.settings
        self.grants = OAuthGrants(database, settings)
        self._tokens = OAuthTokens(database, settings)
        self._resource = TokenResource(settings.resource_url, None)
        self._client_id = client_id

    async def code(self, user: UserRecord) -> str:
        request = GrantRequest(
            user=user,
            client_id=self._client_id,
            client_name="App",
            redirect_uri=REDIRECT_URI,
            resource=self._resource,
            scopes=frozenset(SCOPES),
        )
        return await self.grants.approve(request, challenge_of(_VERIFIER))

    async def tokens(self, user: UserRecord) -> IssuedTokens:
        request = TokenRequest(client_id=self._client_id, code_verifier=_VERIFIER)
        return await self._tokens.redeem(await self.code(user), request)


# -- forgeries ----------------------------------------------------------------------------------------------------


def _access_tokens(loot: Loot) -> Iterator[tuple[str, str]]:
    yield from (("withdrawn access token", token) for token in loot.withdrawn_access)
    others = [*loot.codes, *loot.refresh, loot.client_id]
    yield from (("another kind of credential", text) for text in others)
    yield from (("another prefix", ACCESS_TOKEN + text.partition("_")[2]) for text in others)
    yield from _alterations(loot.access)
    yield from _random_credentials(ACCESS_TOKEN)


def _token_requests(loot: Loot) -> Iterator[tuple[str, dict[str, str]]]:
    yield from (("withdrawn refresh token", _refresh(token)) for token in loot.withdrawn_refresh)
    codes = chain(_alterations(loot.codes), _random_credentials(CODE))
    tokens = chain(_alterations(loot.refresh), _random_credentials(REFRESH_TOKEN))
    for (name, code), (_, token) in zip(codes, tokens, strict=False):
        yield f"code: {name}", {"grant_type": "authorization_code", "code": code}
        yield f"refresh token: {name}", _refresh(token)


def _refresh(token: str) -> dict[str, str]:
    return {"grant_type": "refresh_token", "refresh_token": token}


def _alterations(credentials: list[str]) -> Iterator[tuple[str, str]]:
    """Changes each credential in every place: other characters, missing ones, additional ones, two exchanged."""
    for credential in credentials:
        prefix, secret = credential[:5], credential[5:]
        for place in range(len(secret)):
            before, after = secret[:place], secret[place + 1 :]
            for character in _ALPHABET.replace(secret[place], ""):
                yield f"character {place} replaced", prefix + before + character + after
            yield f"character {place} missing", prefix + before + after
            yield f"character {place} twice", prefix + before + secret[place] + secret[place:]
            if after and after[0] != secret[place]:
                yield f"characters {place} exchanged", prefix + before + after[0] + secret[place] + after[1:]
        yield from _other_forms(credential)


def _other_forms(credential: str) -> Iterator[tuple[str, str]]:
    prefix, secret = credential[:5], credential[5:]
    digest = base64.urlsafe_b64encode(secret.encode()).decode()
    yield "upper case", prefix + secret.swapcase()
    yield "reversed", prefix + secret[::-1]
    yield "upper-case prefix", prefix.upper() + secret
    yield "without prefix", secret
    yield "padded", credential + "="
    yield "encoded", prefix + digest[:43]
    yield "twice", credential + credential
    yield "with a comma", f"{credential},{credential}"
    yield "in quotes", f'"{credential}"'
    yield "with a dot", credential + "."


def _random_credentials(prefix: str) -> Iterator[tuple[str, str]]:
    numbers = random.Random(time.time_ns())
    for _ in cycle((0,)):
        yield "random", prefix + "".join(numbers.choices(_ALPHABET, k=43))
