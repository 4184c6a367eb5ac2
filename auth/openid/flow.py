"""The `state`, nonce and PKCE verifier of a sign-in at a provider.

They are derived from a secret that is in a cookie of the browser, so that only the browser that started a sign-in can
complete it, in any number of tabs, and nothing has to be stored meanwhile.
"""

import base64
import hashlib
import hmac
import secrets

import msgspec
from msgspec import Struct

from auth.openid.errors import OpenIdFailed


class _StatePayload(Struct, frozen=True, array_like=True):
    random: str
    provider_id: str
    target: str
    started_at: int


class SignInFlow(Struct, frozen=True):
    """A sign-in under way. `target` is where it leads afterwards."""

    state: str
    nonce: str
    code_verifier: str
    target: str

    @property
    def code_challenge(self) -> str:
        """The challenge of method S256 (RFC 7636 section 4.2)."""
        return _encode(hashlib.sha256(self.code_verifier.encode()).digest())


def start_flow(browser_secret: str, provider_id: str, target: str, now: float) -> SignInFlow:
    payload = _StatePayload(secrets.token_urlsafe(16), provider_id, target, int(now))
    text = _encode(msgspec.json.encode(payload))
    return _flow(browser_secret, text, target)


def resume_flow(browser_secret: str, provider_id: str, state: str, now: float, lifetime_s: float) -> SignInFlow:
    """Returns the flow of a `state` that comes back. Raises OpenIdFailed unless this browser started it, with this
    provider, and not long ago."""
    text, _, signature = state.partition(".")
    expected = _flow(browser_secret, text, "").state.partition(".")[2] if browser_secret else ""
    if not expected or not hmac.compare_digest(expected.encode(), signature.encode()):
        raise OpenIdFailed("this browser did not start the sign-in; go to the sign-in page and start again")
    payload = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_StatePayload)
    if payload.provider_id != provider_id:
        raise OpenIdFailed("the sign-in was started with another provider; start again")
    if not 0 <= now - payload.started_at + 1 <= lifetime_s:
        raise OpenIdFailed("the sign-in took too long; start again")
    return _flow(browser_secret, text, payload.target)


def _flow(browser_secret: str, text: str, target: str) -> SignInFlow:
    state, nonce, verifier = (_derive(browser_secret, purpose, text) for purpose in ("state", "nonce", "verifier"))
    return SignInFlow(f"{text}.{state}", nonce, verifier, target)


def _derive(secret: str, purpose: str, text: str) -> str:
    return _encode(hmac.new(secret.encode(), f"openid {purpose} {text}".encode(), hashlib.sha256).digest())


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
