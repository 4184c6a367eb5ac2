"""`doctor --token -`: what the operator's own machine knows about a credential."""

import base64
import hashlib
import time
from pathlib import Path

from auth.context import READ
from auth.oauth.grants import ACCESS_TOKEN, GrantRequest, OAuthGrants, TokenResource
from auth.oauth.tokens import OAuthTokens, TokenRequest
from auth.registry import Registry, generate_credential
from auth.tokens import mint_token
from config.paths import DataRoot
from config.settings import Settings
from server.doctor.tokens import explain_credential
from server.stores import control_location
from tests.live import JWT_SECRET, make_settings


def token_for(settings: Settings, subject: str, age_s: float = 0.0) -> str:
    now = time.time() - age_s
    return mint_token(settings, subject, [READ], lifetime_s=3600, now=now, client_id="test")


async def explain(settings: Settings, credential: str) -> tuple[str, str]:
    check = await explain_credential(settings, DataRoot(Path(settings.data_dir)), credential)
    return check.outcome, check.message


async def test_tokens_are_explained(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with Registry.open(control_location(settings, DataRoot(tmp_path))) as registry:
        await registry.add_user("ada")
        await registry.disable_user((await registry.add_user("ben")).id)
    other = make_settings(tmp_path, public_url="https://other.example.com")
    forged = make_settings(tmp_path, jwt_secret=JWT_SECRET[::-1])

    results = {
        "valid": await explain(settings, token_for(settings, "ada")),
        "expired": await explain(settings, token_for(settings, "ada", age_s=7200)),
        "other audience": await explain(settings, token_for(other, "ada")),
        "forged": await explain(settings, token_for(forged, "ada")),
        "unknown": await explain(settings, token_for(settings, "eve")),
        "disabled": await explain(settings, token_for(settings, "ben")),
    }

    assert [name for name, (outcome, _) in results.items() if outcome == "ok"] == ["valid"]
    assert "with the scopes knowledge:read" in results["valid"][1]
    assert "it expired at" in results["expired"][1]
    assert f"https://other.example.com/mcp, and {settings.audience} is expected" in results["other audience"][1]
    assert "the signature does not match" in results["forged"][1]
    assert "there is no user 'eve'" in results["unknown"][1]
    assert "the user ben is disabled" in results["disabled"][1]


async def test_keys_are_explained(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with Registry.open(control_location(settings, DataRoot(tmp_path))) as registry:
        ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
        valid = await registry.create_key(ada.id, "laptop", [READ])
        revoked = await registry.create_key(ben.id, "phone", [READ])
        expired = await registry.create_key(ben.id, "tablet", [READ], expires_at=time.time() + 0.05)
        await registry.revoke_key(revoked[0].id)
    time.sleep(0.1)

    messages = [await explain(settings, secret) for _, secret in (valid, revoked, expired)]
    unknown = await explain(settings, "flo_" + "a" * 43)

    assert messages[0] == ("ok", "the API key 'laptop' of ada is valid, with the scopes knowledge:read")
    assert messages[1][1].startswith("the API key 'phone' of ben was revoked at ")
    assert messages[2][1].startswith("the API key 'tablet' of ben expired at ")
    assert unknown[1].startswith("no API key of this data directory")


async def test_tokens_of_connected_applications_are_explained(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with Registry.open(control_location(settings, DataRoot(tmp_path))) as registry:
        tokens = [await connect(registry, settings, name) for name in ("ada", "ben", "carl")]
        _, ben, carl = await registry.list_users()
        grants = OAuthGrants(registry.database, settings)
        [connection] = await grants.list(ben.id)
        await grants.revoke(ben.id, connection.id)
        await registry.disable_user(carl.id)

    valid, ended, disabled = [await explain(settings, token) for token in tokens]
    unknown = await explain(settings, generate_credential(ACCESS_TOKEN))

    assert valid == ("ok", f"the token of 'Reader' for ada is valid for {settings.resource_url}")
    assert disabled == (
        "fail",
        "the token of 'Reader' for carl: the user is disabled, or access was withdrawn; sign in again",
    )
    assert ended == unknown
    assert unknown[1] == "the token was not issued here, or its connection was ended; sign in again"


async def connect(registry: Registry, settings: Settings, name: str) -> str:
    """Returns the access token of an application that a new user has connected."""
    resource, redirect_uri = TokenResource(settings.resource_url, None), "http://127.0.0.1/callback"
    request = GrantRequest(
        user=await registry.add_user(name),
        client_id="c_reader",
        client_name="Reader",
        redirect_uri=redirect_uri,
        resource=resource,
        scopes=frozenset((READ,)),
        sources=None,
    )
    verifier = "v" * 64
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    code = await OAuthGrants(registry.database, settings).approve(request, challenge)
    token_request = TokenRequest(client_id="c_reader", redirect_uri=redirect_uri, code_verifier=verifier)
    return (await OAuthTokens(registry.database, settings).redeem(code, token_request)).access_token
