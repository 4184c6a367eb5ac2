"""Explains a credential with the settings and the control database of this machine."""

import time
from datetime import UTC, datetime

from auth.api_keys import has_key_prefix, hash_key
from auth.key_sources import load_signing_keys
from auth.registry import KeyRecord, Registry, UserRecord
from auth.tokens import Claims, JwtVerifier
from config.errors import Unauthenticated
from config.paths import DataRoot
from config.settings import Settings
from server.doctor.check import Check
from server.doctor.tokens import ExpectedToken, read_claims, token_problems

_NAME = "token"


async def explain_credential(settings: Settings, data_root: DataRoot, credential: str) -> Check:
    """Says whether a server with these settings accepts the credential, and if not, why."""
    if has_key_prefix(credential):
        return await _explain_key(data_root, credential)
    return await _explain_jwt(settings, data_root, credential)


async def _explain_key(data_root: DataRoot, credential: str) -> Check:
    if not data_root.control_path.exists():
        return Check(_NAME, "fail", "this data directory has no API keys yet")
    async with Registry.open(data_root.control_path) as registry:
        key = await registry.key_by_hash(hash_key(credential))
    if key is None:
        return Check(_NAME, "fail", "no API key of this data directory; check data_dir and that the key is complete")
    return _evaluate_key(key, time.time())


def _evaluate_key(key: KeyRecord, now: float) -> Check:
    label = f"the API key {key.name!r} of {key.user.name}"
    if key.user.is_disabled:
        return Check(_NAME, "fail", f"{label}: the user is disabled; `florilegium user enable` enables it again")
    if key.revoked_at is not None:
        return Check(_NAME, "fail", f"{label} was revoked at {_time(key.revoked_at)}")
    if not key.is_valid(now):
        return Check(_NAME, "fail", f"{label} expired at {_time(key.expires_at or now)}")
    return Check(_NAME, "ok", f"{label} is valid, with the scopes {' '.join(sorted(key.scopes))}")


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
    user = await _find_user(settings, data_root, claims) if data_root.control_path.exists() else None
    if user is None and not settings.jwt_create_users:
        advice = f"add it with `florilegium user add NAME --subject {claims.subject}`, or set jwt_create_users"
        return Check(_NAME, "fail", f"the token is valid, but there is no user {claims.subject!r}; {advice}")
    if user is not None and user.is_disabled:
        return Check(_NAME, "fail", f"the token is valid, but the user {user.name} is disabled")
    scopes = " ".join(sorted(claims.scopes)) or "none"
    return Check(_NAME, "ok", f"valid for {claims.subject} until {_time(claims.expires_at)}, with the scopes {scopes}")


async def _find_user(settings: Settings, data_root: DataRoot, claims: Claims) -> UserRecord | None:
    async with Registry.open(data_root.control_path) as registry:
        user = await registry.user_by_identity(claims.issuer, claims.subject)
        if user is None and claims.issuer == settings.issuer:
            user = await registry.user_by_identity("", claims.subject)
    return user


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
