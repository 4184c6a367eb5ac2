"""Explains to the owner of a token why a server refuses it, from the token itself and what the server publishes."""

import base64
import binascii
import json
import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from auth.api_keys import has_key_prefix
from auth.oauth.credentials import ACCESS_TOKEN, REFRESH_TOKEN
from config.times import format_time_seconds
from server.doctor.requests import HopResponse


class ExpectedToken(Struct, frozen=True):
    """What a server publishes about the tokens it accepts. An empty issuer is unknown."""

    audience: str
    issuer: str = ""


def describe_refusal(token: str, response: HopResponse, expected: ExpectedToken) -> str:
    """Returns why the token was refused, as far as its owner can know it."""
    message = response.error_message() or f"status {response.status}"
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
    problems = [
        *_time_problems(claims, now),
        *_audience_problems(claims, expected.audience),
        *_issuer_problems(claims, expected.issuer),
    ]
    return problems or ["its times, audience and issuer are right; the server's log says more at log_level debug"]


def read_claims(token: str) -> Mapping[str, Any] | None:
    """Returns the claims of a JWT without verifying it, or None if it is none."""
    try:
        _, payload, _ = token.split(".")
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None


def _time_problems(claims: Mapping[str, Any], now: float) -> list[str]:
    problems = []
    expires_at, not_before = claims.get("exp"), claims.get("nbf")
    if not isinstance(expires_at, int | float):
        problems.append("it has no expiry (exp)")
    elif expires_at <= now:
        problems.append(f"it expired at {_time(expires_at)}, and now it is {_time(now)}")
    if isinstance(not_before, int | float) and not_before > now:
        problems.append(f"it is valid from {_time(not_before)} on, and now it is {_time(now)}: compare the clocks")
    return problems


def _audience_problems(claims: Mapping[str, Any], expected: str) -> list[str]:
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if expected in audiences:
        return []
    actual = ", ".join(str(name) for name in audiences if name) or "missing"
    return [f"its audience (aud) is {actual}, and {expected} is expected"]


def _issuer_problems(claims: Mapping[str, Any], expected: str) -> list[str]:
    issuer = claims.get("iss")
    if not expected or issuer == expected:
        return []
    return [f"its issuer (iss) is {issuer or 'missing'}, and {expected} is expected"]


def _time(seconds: float) -> str:
    try:
        return format_time_seconds(seconds)
    except (ValueError, OverflowError, OSError):
        return str(seconds)
