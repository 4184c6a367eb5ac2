"""Claims of valid tokens, and minted tokens. Tokens that must be rejected are in test_attack_tokens."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from loguru import logger

from auth.context import ADMIN, READ, WRITE
from auth.signing_keys import load_signing_keys
from auth.tokens import Claims, JwtVerifier, mint_token
from config.errors import ConfigurationError, InvalidParams, Unauthenticated
from config.loading import risks
from tests.auth.auth_fixture import NOW, PUBLIC_URL, SECRET, make_settings
from tests.auth.issuers import ABSENT, b64, compact, eddsa, es256, hs256, jwks
from tests.cases import each_case

ISSUER = hs256()


def verifier(**changes: Any) -> JwtVerifier:
    settings = make_settings(jwt_secret=SECRET, **changes)
    keys = load_signing_keys(settings)
    assert keys
    return JwtVerifier(settings, keys)


async def test_claims_of_a_token_are_returned() -> None:
    claims = await verifier().verify(ISSUER.token(jti="1"), NOW)

    assert claims == Claims(
        issuer=PUBLIC_URL,
        subject="alice",
        client_id=claims.client_id,
        scopes=frozenset({READ, WRITE}),
        expires_at=NOW + 630,
        issued_at=NOW - 60,
        identity="1",
    )
    assert claims.client_id == "reader"


async def test_claim_names_are_configurable() -> None:
    jwt_verifier = verifier(jwt_user_claim="oid", jwt_scope_claim="scp", jwt_audience="api://kb")
    token = ISSUER.token(
        oid="0f3b", client_id=ABSENT, appid="tool", scp=["admin"], aud="api://kb", scope="knowledge:read"
    )

    claims = await jwt_verifier.verify(token, NOW)

    assert (claims.subject, claims.client_id) == ("0f3b", "tool")
    assert claims.scopes == {ADMIN}


@each_case(
    ("claims", "expected"),
    [
        ({"client_id": "c", "azp": "a"}, "c"),
        ({"client_id": ABSENT, "azp": "a"}, "a"),
        ({"client_id": ABSENT}, "alice"),
    ],
)
async def test_client_comes_from_its_claim_or_azp_or_the_user(claims: dict[str, Any], expected: str) -> None:
    assert (await verifier().verify(ISSUER.token(**claims), NOW)).client_id == expected


@each_case(
    ("scope", "expected"),
    [
        (ABSENT, {READ}),
        ("", set()),
        ([], set()),
        ("admin", {ADMIN}),
        ("openid  knowledge:write ", {"openid", WRITE}),
        (["openid", WRITE], {"openid", WRITE}),
    ],
)
async def test_default_scopes_apply_only_without_a_scope_claim(scope: Any, expected: set[str]) -> None:
    jwt_verifier = verifier(jwt_default_scopes=(READ,))

    assert (await jwt_verifier.verify(ISSUER.token(scope=scope), NOW)).scopes == expected


async def test_identity_without_jti_is_the_hash_of_the_signing_input() -> None:
    one, same, other = ISSUER.token(), ISSUER.token(), ISSUER.token(client_id="other")
    identities = [(await verifier().verify(token, NOW)).identity for token in (one, same, other)]

    assert identities[0] == identities[1] != identities[2]
    assert len(identities[0]) == 64


@each_case("leeway_s", [0, 30])
async def test_token_expires_exactly_after_the_leeway(leeway_s: int) -> None:
    jwt_verifier, token = verifier(jwt_leeway_s=leeway_s), ISSUER.token(exp=NOW)

    assert (await jwt_verifier.verify(token, NOW + leeway_s - 0.001)).expires_at == NOW + leeway_s
    with pytest.raises(Unauthenticated, match=r"^token expired$"):
        await jwt_verifier.verify(token, NOW + leeway_s)


@each_case("iss", [PUBLIC_URL[:-1], PUBLIC_URL + "/", PUBLIC_URL.upper(), "https://other.example.com"])
async def test_issuer_is_compared_exactly(iss: str) -> None:
    with pytest.raises(Unauthenticated):
        await verifier().verify(ISSUER.token(iss=iss), NOW)


async def test_unaccepted_algorithm_is_rejected_before_keys_are_fetched() -> None:
    fetches = 0

    async def fetch(_url: str) -> bytes:
        nonlocal fetches
        fetches += 1
        return jwks(es256(), eddsa())

    settings = make_settings(jwt_jwks_url="https://id/keys", jwt_issuer=es256().iss, jwt_algorithms=("EdDSA",))
    keys = load_signing_keys(settings, fetch)
    assert keys
    jwt_verifier = JwtVerifier(settings, keys)

    with pytest.raises(Unauthenticated):
        await jwt_verifier.verify(es256().token(), NOW)
    assert fetches == 0
    assert (await jwt_verifier.verify(eddsa().token(), NOW)).subject == "alice"
    assert fetches == 1


@each_case("claim", ["type", "token_type", "token_use"])
@each_case("purpose", ["refresh", "refresh_token", "password_reset", "email-verification", "id", "ID", "id_token"])
async def test_token_for_another_purpose_is_rejected(claim: str, purpose: str) -> None:
    with pytest.raises(Unauthenticated):
        await verifier().verify(ISSUER.token({}, **{claim: purpose}), NOW)


@each_case("purpose", ["access", "access_token", "Bearer", "identity-provider", 7, None])
async def test_access_token_with_a_purpose_claim_is_accepted(purpose: Any) -> None:
    assert (await verifier().verify(ISSUER.token(type=purpose), NOW)).subject == "alice"


async def test_length_limit_is_configurable() -> None:
    token = ISSUER.token(pad="x" * 1000)

    assert (await verifier(token_max_bytes=len(token)).verify(token, NOW)).subject == "alice"
    with pytest.raises(Unauthenticated):
        await verifier(token_max_bytes=len(token) - 1).verify(token, NOW)


async def test_log_contains_the_reason_but_not_the_token() -> None:
    token = ISSUER.token(aud="https://canary.example.com", sub="canary")
    lines: list[str] = []
    sink = logger.add(lines.append, level="DEBUG", format="{message}")
    try:
        with pytest.raises(Unauthenticated, match=r"^token not accepted$"):
            await verifier().verify(token, NOW)
    finally:
        logger.remove(sink)

    assert lines == ["token rejected: aud does not name this server\n"]


# Arbitrary input


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
@example("a.b.c")
async def test_arbitrary_text_is_rejected(text: str) -> None:
    with pytest.raises(Unauthenticated):
        await verifier().verify(text, NOW)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = ("alg", "typ", "kid", "crit", "iss", "aud", "sub", "exp", "nbf", "iat", "jti", "scope", "client_id", "azp")


@given(
    st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4),
    st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4),
)
async def test_signed_token_with_arbitrary_content_returns_claims_or_is_rejected(
    header: dict[str, Any], claims: dict[str, Any]
) -> None:
    token = compact(ISSUER.header(**header), ISSUER.payload(**claims), ISSUER.sign)
    try:
        result = await verifier().verify(token, NOW)
    except Unauthenticated:
        return
    assert result.issuer == PUBLIC_URL
    assert 0 < len(result.subject) <= 255
    assert result.expires_at > NOW


# Minting


async def test_minted_token_is_accepted_under_the_same_settings() -> None:
    settings = make_settings(jwt_secret=SECRET, jwt_user_claim="user", jwt_scope_claim="scp")
    keys = load_signing_keys(settings)
    assert keys
    token = mint_token(settings, "alice", [WRITE, READ], lifetime_s=60, now=NOW + 0.25, client_id="cli")

    claims = await JwtVerifier(settings, keys).verify(token, NOW + 1)

    assert (claims.subject, claims.client_id) == ("alice", "cli")
    assert claims.scopes == {READ, WRITE}
    assert (claims.issued_at, claims.expires_at) == (NOW + 0.25, NOW + 90.25)


def test_minted_tokens_are_unique_and_typed() -> None:
    settings = make_settings(jwt_secret=SECRET)
    one, two = (mint_token(settings, "alice", [READ], lifetime_s=60, now=NOW, client_id="cli") for _ in range(2))

    assert one != two
    assert one.split(".")[0] == b64(b'{"alg":"HS256","typ":"at+jwt"}')


def test_minting_without_a_secret_raises_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="set jwt_secret"):
        mint_token(make_settings(), "alice", [READ], lifetime_s=60, now=NOW, client_id="cli")


@each_case(
    ("changes", "field"),
    [
        ({"subject": ""}, "subject"),
        ({"subject": "a\n"}, "subject"),
        ({"client_id": ""}, "client_id"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes"),
        ({"lifetime_s": 0}, "lifetime_s"),
        ({"lifetime_s": float("nan")}, "lifetime_s"),
        ({"lifetime_s": 1e12}, "lifetime_s"),
    ],
)
def test_minting_an_invalid_token_raises_invalid_params(changes: dict[str, Any], field: str) -> None:
    arguments = {"subject": "alice", "scopes": [READ], "lifetime_s": 60, "now": NOW, "client_id": "cli"}

    with pytest.raises(InvalidParams, match=f"^{field}: expected"):
        mint_token(make_settings(jwt_secret=SECRET), **{**arguments, **changes})


# Required claims, roles and permissions

TLDW: dict[str, Any] = {
    "jwt_required_claims": ("type=access",),
    "jwt_scope_map": (
        "admin=admin knowledge:read knowledge:write",
        "user=knowledge:read",
        "media.create=knowledge:write",
    ),
    "jwt_insecure_no_issuer": True,
    "jwt_insecure_no_audience": True,
}
NO_SCOPE: dict[str, Any] = {"scope": ABSENT}


@each_case("value", [ABSENT, "refresh", "password", "Access", "", None, 1, ["x"], {"access": True}])
async def test_token_without_a_required_claim_is_rejected(value: object) -> None:
    with pytest.raises(Unauthenticated):
        await verifier(**TLDW).verify(ISSUER.token(type=value), NOW)


@each_case(
    ("required", "claims"),
    [
        (("type=access",), {"type": "access"}),
        (("type=access", "type=api"), {"type": "api"}),
        (("groups=staff",), {"groups": ["guests", "staff"]}),
        (("email_verified=true",), {"email_verified": True}),
        (("acr=2",), {"acr": 2}),
        (("realm_access.roles=kb",), {"realm_access": {"roles": ["kb"]}}),
        (("https://example.com/?a=b=staff",), {"https://example.com/?a=b": "staff"}),
    ],
)
async def test_token_with_the_required_claims_is_accepted(required: tuple[str, ...], claims: dict[str, Any]) -> None:
    jwt_verifier = verifier(jwt_required_claims=required)
    assert (await jwt_verifier.verify(ISSUER.token(**claims), NOW)).subject == "alice"
    with pytest.raises(Unauthenticated):
        await jwt_verifier.verify(ISSUER.token(), NOW)


@each_case(
    ("claims", "scopes"),
    [
        ({"role": "admin", **NO_SCOPE}, {ADMIN, READ, WRITE}),
        ({"role": "user", **NO_SCOPE}, {READ}),
        ({"roles": ["user"], "permissions": ["media.create", "media.read"], **NO_SCOPE}, {READ, WRITE}),
        ({"role": "Admin", **NO_SCOPE}, set()),
        ({"role": "admin user", **NO_SCOPE}, set()),
        # A role that has the name of a scope is not that scope.
        ({"roles": ["admin:none", "knowledge:write"], **NO_SCOPE}, set()),
        ({"role": "user", "scope": "knowledge:write"}, {READ, WRITE}),
        ({"scope": "user"}, {"user", READ}),
        (NO_SCOPE, set()),
    ],
)
async def test_roles_and_permissions_are_mapped_to_scopes(claims: dict[str, Any], scopes: set[str]) -> None:
    assert (await verifier(**TLDW).verify(ISSUER.token(type="access", **claims), NOW)).scopes == scopes


async def test_roles_mean_nothing_without_a_map() -> None:
    assert (await verifier().verify(ISSUER.token(role="admin", **NO_SCOPE), NOW)).scopes == set()


async def test_claims_of_roles_are_configurable() -> None:
    jwt_verifier = verifier(jwt_scope_map=("editor=knowledge:write",), jwt_role_claims=("realm_access.roles",))
    token = ISSUER.token(realm_access={"roles": ["editor"]}, role="editor", **NO_SCOPE)
    assert (await jwt_verifier.verify(token, NOW)).scopes == {WRITE}
    assert (await jwt_verifier.verify(ISSUER.token(role="editor", **NO_SCOPE), NOW)).scopes == set()


@each_case("value", [None, 1, {"admin": True}, ["admin", 1], True])
async def test_malformed_roles_are_rejected(value: object) -> None:
    with pytest.raises(Unauthenticated):
        await verifier(**TLDW).verify(ISSUER.token(type="access", role=value), NOW)


async def test_issuer_and_audience_may_be_absent_only_with_the_insecure_settings() -> None:
    token = ISSUER.token(type="access", iss=ABSENT, aud=ABSENT)
    assert (await verifier(**TLDW).verify(token, NOW)).issuer == PUBLIC_URL
    for name in ("jwt_insecure_no_issuer", "jwt_insecure_no_audience"):
        with pytest.raises(Unauthenticated):
            await verifier(**{**TLDW, name: False}).verify(token, NOW)


@each_case("claims", [{"iss": "https://other"}, {"aud": "other"}, {"iss": None}, {"aud": []}])
async def test_wrong_issuer_or_audience_is_rejected_even_with_the_insecure_settings(claims: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated):
        await verifier(**TLDW).verify(ISSUER.token(type="access", **claims), NOW)


async def test_minted_tokens_have_the_required_claims() -> None:
    settings = make_settings(jwt_secret=SECRET, jwt_required_claims=("type=access", "sub=mallory"))
    token = mint_token(settings, "alice", [READ], lifetime_s=60, now=NOW, client_id="cli")
    with pytest.raises(Unauthenticated):  # the subject stays the user's
        await verifier(jwt_required_claims=("type=access", "sub=mallory")).verify(token, NOW)
    assert (await verifier(jwt_required_claims=("type=access",)).verify(token, NOW)).subject == "alice"


@each_case(("value", "name"), [("Alice B.", "Alice B."), ("a\nb", ""), (7, ""), (ABSENT, "")])
async def test_name_claim_is_returned_if_it_is_a_name(value: object, name: str) -> None:
    claims = await verifier(jwt_name_claim="preferred_username").verify(ISSUER.token(preferred_username=value), NOW)
    assert (claims.subject, claims.name) == ("alice", name)


@each_case(
    ("setting", "entry", "message"),
    [
        ("jwt_required_claims", "type", "jwt_required_claims: expected NAME=VALUE, such as type=access, got 'type'"),
        ("jwt_required_claims", "=access", "jwt_required_claims: expected NAME=VALUE"),
        (
            "jwt_scope_map",
            "admin=",
            "jwt_scope_map: expected VALUE=SCOPE, such as editor=knowledge:write, got 'admin='",
        ),
    ],
)
def test_malformed_entries_are_rejected_at_start(setting: str, entry: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_settings(jwt_secret=SECRET, **{setting: (entry,)})


def test_insecure_settings_are_reported_as_risks() -> None:
    assert not [risk for risk in risks(make_settings(jwt_secret=SECRET)) if "insecure" in risk]
    reported = "\n".join(risks(make_settings(jwt_secret=SECRET, **TLDW)))
    assert "jwt_insecure_no_issuer: tokens of any service that signs with the same key are accepted" in reported
    assert "jwt_insecure_no_audience: tokens that were issued for another service are accepted" in reported
