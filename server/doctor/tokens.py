"""Explains to the owner of a token why a server refuses it, from the token itself and what the server publishes."""

import base64
import binascii
import json
import time
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from auth.oauth.grants import ACCESS_TOKEN, REFRESH_TOKEN, hash_credential
from auth.oauth.tokens import OAuthTokens
from auth.registry import Registry, has_key_prefix, hash_key
from auth.signing_keys import load_signing_keys
from auth.tokens import JwtVerifier
from config.errors import Unauthenticated
from config.paths import DataRoot
from config.settings import Settings
from config.times import format_time_seconds
from server.doctor.requests import HopResponse
from server.stores import control_location, has_control_data


class ExpectedToken(Struct, frozen=True):
    """What a server publishes about the tokens it accepts. An empty issuer is unknown."""

    audience: str
    issuer: str = ""


def describe_refusal(token: str, response: HopResponse, expected: ExpectedToken) -> str:
    """Returns why the token was refused, as far as its owner can know it."""
    message = response.error_message() or f"status {response.status}"
    # RFC 6750 section 3.1: 403 means that the token is valid, but has too few scopes.
    if response.status == 403:
        return f"the token is accepted, but not for this: {message}"
    return f"the token is refused ({message}): {'; '.join(token_problems(token, expected, time.time()))}"


def token_problems(token: str, expected: ExpectedToken, now: float) -> list[str]:
    """Returns what is wrong with a token. Its claims are read without checking who signed them."""
    if has_key_prefix(token):
        return ["it is an API key that is unknown, revoked or expired; create another with `florilegium key create`"]
    if token.startswith((ACCESS_TOKEN, REFRESH_TOKEN)):
        return ["it is a token of an OAuth client that was revoked or has expired; sign in again with the client"]
    claims = read_claims(token)
    if claims is None:
        return ["it is neither an API key nor a JWT"]
    problems = []
    expires_at, not_before = claims.get("exp"), claims.get("nbf")
    if not isinstance(expires_at, int | float):
        problems.append("it has no expiry (exp)")
    elif expires_at <= now:
        problems.append(f"it expired at {_time(expires_at)}, and now it is {_time(now)}")
    if isinstance(not_before, int | float) and not_before > now:
        problems.append(f"it is valid from {_time(not_before)} on, and now it is {_time(now)}: compare the clocks")
    # RFC 7519 section 4.1.3: the audience is one text or a list of them.
    audience, issuer = claims.get("aud"), claims.get("iss")
    audiences = audience if isinstance(audience, list) else [audience]
    if expected.audience not in audiences:
        actual = ", ".join(str(name) for name in audiences if name) or "missing"
        problems.append(f"its audience (aud) is {actual}, and {expected.audience} is expected")
    if expected.issuer and issuer != expected.issuer:
        problems.append(f"its issuer (iss) is {issuer or 'missing'}, and {expected.issuer} is expected")
    return problems or ["its times, audience and issuer are right; the server's log says more at log_level debug"]


def read_claims(token: str) -> Mapping[str, Any] | None:
    """Returns the claims of a JWT without verifying it, or None if it is none."""
    # RFC 7515 section 7.1: header, payload and signature, each in base64url without padding.
    try:
        _, payload, _ = token.split(".")
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None


def _time(seconds: float) -> str:
    try:
        return format_time_seconds(seconds)
    except (ValueError, OverflowError, OSError):
        return str(seconds)


# -- check -------------------------------------------------------------------------------------------------------------
# The result of a check of `florilegium doctor`.


class Check(Struct, frozen=True):
    name: str
    outcome: Literal["ok", "warn", "fail"]
    message: str


# -- local token -------------------------------------------------------------------------------------------------------
# Explains a credential with the settings and the control database of this machine.

_NAME = "token"


async def explain_credential(settings: Settings, data_root: DataRoot, credential: str) -> Check:
    """Says whether a server with these settings accepts the credential, and if not, why."""
    if has_key_prefix(credential):
        if not has_control_data(settings, data_root):
            return Check(_NAME, "fail", "this data directory has no API keys yet")
        async with Registry.open(control_location(settings, data_root)) as registry:
            key = await registry.key_by_hash(hash_key(credential))
        if key is None:
            advice = "check data_dir and that the key is complete"
            return Check(_NAME, "fail", f"no API key of this data directory; {advice}")
        now = time.time()
        label = f"the API key {key.name!r} of {key.user.name}"
        if key.user.is_disabled:
            return Check(_NAME, "fail", f"{label}: the user is disabled; `florilegium user enable` enables it again")
        if key.revoked_at is not None:
            return Check(_NAME, "fail", f"{label} was revoked at {format_time_seconds(key.revoked_at)}")
        if not key.is_valid(now):
            return Check(_NAME, "fail", f"{label} expired at {format_time_seconds(key.expires_at or now)}")
        return Check(_NAME, "ok", f"{label} is valid, with the scopes {' '.join(sorted(key.scopes))}")
    # Prefixes tell the kinds of credentials apart, as the server does it.
    if credential.startswith(ACCESS_TOKEN):
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
    return await _explain_jwt(settings, data_root, credential)


async def _explain_jwt(settings: Settings, data_root: DataRoot, credential: str) -> Check:
    keys = load_signing_keys(settings)
    if keys is None:
        return Check(_NAME, "fail", "tokens are not accepted: no JWT key is configured (jwt_secret, jwt_jwks_url)")
    try:
        claims = await JwtVerifier(settings, keys).verify(credential, time.time())
    except Unauthenticated as error:
        reason = error.reason or error.message
        if read_claims(credential) is not None:
            expected = ExpectedToken(settings.audience, settings.issuer)
            reason = "; ".join((reason, *token_problems(credential, expected, time.time())))
        return Check(_NAME, "fail", f"{error.message}: {reason}")
    user = None
    if has_control_data(settings, data_root):
        async with Registry.open(control_location(settings, data_root)) as registry:
            user = await registry.user_of_claims(claims.issuer, claims.subject, settings.issuer)
    # A valid token of someone unknown creates a user at the first call, if the settings say so.
    if user is None and not settings.jwt_create_users:
        advice = f"add it with `florilegium user add NAME --subject {claims.subject}`, or set jwt_create_users"
        return Check(_NAME, "fail", f"the token is valid, but there is no user {claims.subject!r}; {advice}")
    if user is not None and user.is_disabled:
        return Check(_NAME, "fail", f"the token is valid, but the user {user.name} is disabled")
    scopes, end = " ".join(sorted(claims.scopes)) or "none", format_time_seconds(claims.expires_at)
    return Check(_NAME, "ok", f"valid for {claims.subject} until {end}, with the scopes {scopes}")
