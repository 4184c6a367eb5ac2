"""Explains a credential with the settings and the control database of this machine."""

import time

from auth.api_keys import has_key_prefix, hash_key
from auth.key_sources import load_signing_keys
from auth.oauth.credentials import ACCESS_TOKEN, hash_credential
from auth.oauth.tokens import OAuthTokens
from auth.registry import KeyRecord, Registry
from auth.tokens import Claims, JwtVerifier
from config.errors import Unauthenticated
from config.paths import DataRoot
from config.settings import Settings
from config.times import format_time_seconds
from server.doctor.check import Check
from server.doctor.tokens import ExpectedToken, read_claims, token_problems
from server.stores import control_location, has_control_data

_NAME = "token"


async def explain_credential(settings: Settings, data_root: DataRoot, credential: str) -> Check:
    """Says whether a server with these settings accepts the credential, and if not, why."""
    if has_key_prefix(credential):
        return await _explain_key(settings, data_root, credential)
    if credential.startswith(ACCESS_TOKEN):
        return await _explain_access_token(settings, data_root, credential)
    return await _explain_jwt(settings, data_root, credential)


async def _explain_key(settings: Settings, data_root: DataRoot, credential: str) -> Check:
    if not has_control_data(settings, data_root):
        return Check(_NAME, "fail", "this data directory has no API keys yet")
    async with Registry.open(control_location(settings, data_root)) as registry:
        key = await registry.key_by_hash(hash_key(credential))
    if key is None:
        return Check(_NAME, "fail", "no API key of this data directory; check data_dir and that the key is complete")
    return _evaluate_key(key, time.time())


def _evaluate_key(key: KeyRecord, now: float) -> Check:
    label = f"the API key {key.name!r} of {key.user.name}"
    if key.user.is_disabled:
        return Check(_NAME, "fail", f"{label}: the user is disabled; `florilegium user enable` enables it again")
    if key.revoked_at is not None:
        return Check(_NAME, "fail", f"{label} was revoked at {format_time_seconds(key.revoked_at)}")
    if not key.is_valid(now):
        return Check(_NAME, "fail", f"{label} expired at {format_time_seconds(key.expires_at or now)}")
    return Check(_NAME, "ok", f"{label} is valid, with the scopes {' '.join(sorted(key.scopes))}")


async def _explain_access_token(settings: Settings, data_root: DataRoot, credential: str) -> Check:
    if not has_control_data(settings, data_root):
        return Check(_NAME, "fail", "this data directory has no connected applications yet")
    async with Registry.open(control_location(settings, data_root)) as registry:
        token = await OAuthTokens(registry.database, settings).find(hash_credential(credential))
    if token is None:
        return Check(_NAME, "fail", "the token was not issued here, or its connection was ended; sign in again")
    label = f"the token of {token.grant.client_name!r} for {token.grant.user.name}"
    if not token.grant.is_valid:
        return Check(_NAME, "fail", f"{label}: the user is disabled, or access was withdrawn; sign in again")
    if time.time() >= token.expires_at:
        return Check(_NAME, "fail", f"{label} expired at {format_time_seconds(token.expires_at)}")
    return Check(_NAME, "ok", f"{label} is valid for {token.grant.resource}")


async def _explain_jwt(settings: Settings, data_root: DataRoot, credential: str) -> Check:
    keys = load_signing_keys(settings)
    if keys is None:
        return Check(_NAME, "fail", "tokens are not accepted: no JWT key is configured (jwt_secret, jwt_jwks_url)")
    try:
        claims = await JwtVerifier(settings, keys).verify(credential, time.time())
    except Unauthenticated as error:
        return Check(_NAME, "fail", _describe_jwt(settings, credential, error))
    return await _evaluate_user(settings, data_root, claims)


def _describe_jwt(settings: Settings, credential: str, error: Unauthenticated) -> str:
    reason = error.reason or error.message
    if read_claims(credential) is None:
        return f"{error.message}: {reason}"
    expected = ExpectedToken(settings.audience, settings.issuer)
    return f"{error.message}: {reason}; {'; '.join(token_problems(credential, expected, time.time()))}"


async def _evaluate_user(settings: Settings, data_root: DataRoot, claims: Claims) -> Check:
    user = None
    if has_control_data(settings, data_root):
        async with Registry.open(control_location(settings, data_root)) as registry:
            user = await registry.user_of_claims(claims.issuer, claims.subject, settings.issuer)
    if user is None and not settings.jwt_create_users:
        advice = f"add it with `florilegium user add NAME --subject {claims.subject}`, or set jwt_create_users"
        return Check(_NAME, "fail", f"the token is valid, but there is no user {claims.subject!r}; {advice}")
    if user is not None and user.is_disabled:
        return Check(_NAME, "fail", f"the token is valid, but the user {user.name} is disabled")
    scopes = " ".join(sorted(claims.scopes)) or "none"
    return Check(
        _NAME,
        "ok",
        f"valid for {claims.subject} until {format_time_seconds(claims.expires_at)}, with the scopes {scopes}",
    )
