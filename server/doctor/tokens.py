"""Explains to the owner of a token why a server refuses it, from the token itself and what the server publishes."""

import base64
import binascii
import json
import time
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from auth.oauth.grants import ACCESS_TOKEN, REFRESH_TOKEN
from auth.oauth.tokens import OAuthTokens
from auth.registry import Registry, has_key_prefix, hash_credential
from auth.signing_keys import load_signing_keys
from auth.tokens import JwtVerifier
from config.errors import Unauthenticated
from config.paths import DataRoot
from config.public_http import OutgoingRequestError, open_response
from config.settings import Settings
from config.times import format_time_seconds
from server.stores import control_location, has_control_data

# -- requests ----------------------------------------------------------------------------------------------------------
# The requests of the connection doctor, and the sentences for responses that no client can use.

# Another program may answer at the address, with a response of any size.
_BODY_MAX_BYTES = 4 * 1024 * 1024
_QUOTED_CHARS = 120


class HopFailed(Exception):
    """A hop of the connection failed. The message says why, and what to change."""


class HopResponse(Struct, frozen=True):
    """A response that was read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """Returns the JSON of the body, or of the last event of a stream; None if there is none."""
        text = self.text
        # A server may answer a POST with a stream, whose last event is the response (MCP, Streamable HTTP).
        if self.media_type == "text/event-stream":
            events = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
            text = events[-1] if events else ""
        try:
            return json.loads(text)
        except ValueError:
            return None

    def json_object(self, what: str) -> dict[str, Any]:
        value = self.json()
        if not isinstance(value, dict):
            raise HopFailed(f"{what} is not a JSON object, but {self.describe()}")
        return value

    def describe(self) -> str:
        kind = self.media_type or "a response without a type"
        return f"{kind} with status {self.status}: {self.quote()}"

    def quote(self) -> str:
        """Returns the beginning of the body on one line."""
        # It is printed on a terminal, and any program may have sent it.
        text = " ".join("".join(c if c.isprintable() else " " for c in self.text).split())
        return text[:_QUOTED_CHARS] + ("…" if len(text) > _QUOTED_CHARS else "") or "no text"

    def error_message(self) -> str:
        """Returns the message of an error response of this server, in any of its formats."""
        value = self.json()
        error = value.get("error") if isinstance(value, dict) else None
        if isinstance(error, dict):
            return str(error.get("message", ""))
        if isinstance(error, str):
            return f"{error} {value.get('error_description', '')}".strip()
        return str(value.get("detail") or value.get("message") or "") if isinstance(value, dict) else ""


class Requests:
    """Sends requests as a client would: without redirects, and with the Origin of a client that runs in a browser."""

    def __init__(self, timeout_s: float, origin: str = "") -> None:
        self._timeout_s = timeout_s
        self._headers = {"User-Agent": "florilegium-doctor", **({"Origin": origin} if origin else {})}

    async def send(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> HopResponse:
        try:
            async with open_response(
                method, url, headers={**self._headers, **(headers or {})}, body=body, timeout_s=self._timeout_s
            ) as response:
                return HopResponse(response.status, response.headers, await response.read(_BODY_MAX_BYTES))
        except OutgoingRequestError as error:
            raise HopFailed(_connection_problem(url, error)) from error

    async def get(self, url: str) -> HopResponse:
        return await self.send("GET", url, {"Accept": "application/json"})

    async def post_json(self, url: str, value: Any, headers: Mapping[str, str] | None = None) -> HopResponse:
        own = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        return await self.send("POST", url, {**own, **(headers or {})}, json.dumps(value).encode())


def _connection_problem(url: str, error: OutgoingRequestError) -> str:
    # The error has only the text of its cause, from OpenSSL or from the resolver of the system.
    host, detail = urlsplit(url).netloc, error.detail
    if "CERTIFICATE_VERIFY_FAILED" in detail:
        reason = detail.partition("certificate verify failed:")[2].partition(" (")[0].strip() or "not trusted"
        return f"the TLS certificate of {host} is not accepted ({reason}); install one that all clients trust"
    if "WRONG_VERSION_NUMBER" in detail or "record layer" in detail:
        return f"{host} does not speak TLS at this port; use http://, or terminate TLS in a reverse proxy"
    if "Name or service" in detail or "getaddrinfo" in detail or "nodename" in detail:
        return f"the name {urlsplit(url).hostname} cannot be resolved; check the address and its DNS record"
    if "refused" in detail.lower() or "All connection attempts failed" in detail:
        return f"nothing listens at {host}; start the server, and check host and port"
    return f"{host} {error}"


def response_problem(response: HopResponse, url: str, origin: str) -> str:
    """Says why an MCP endpoint gave a response that is neither a result nor a challenge, and what to change."""
    status, host = response.status, urlsplit(url).netloc
    message = response.error_message()
    if status in (301, 302, 303, 307, 308):
        target = response.headers.get("location", "another address")
        return f"redirects to {target}; give clients that address, or let the proxy forward requests instead"
    if status == 403 and "host name" in message:
        return f"the server does not serve the host name {host}: add it to allowed_hosts, or set public_url"
    if status == 403 and "origin" in message:
        return f"the server refuses the Origin of this client: add {origin or 'its origin'} to allowed_origins"
    if status in (200, 404, 405, 501) and urlsplit(url).path in ("", "/"):
        return f"no MCP endpoint at this address; add /mcp: {url.rstrip('/')}/mcp"
    if status == 404:
        return "no MCP endpoint at this path; the address usually ends with /mcp, or with /mcp/research and the like"
    if status in (405, 501):
        return "another program answers at this path: it does not accept POST"
    if status in (502, 503, 504) and not message:
        return (
            f"the reverse proxy answers {status}: it does not reach the server; check the address that it forwards to"
        )
    if response.media_type == "text/html":
        return f"a web page answers (status {status}): the proxy or another program does not forward this path"
    return f"answers status {status}: {message or response.quote()}"


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
            key = await registry.key_by_hash(hash_credential(credential))
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
