"""Signs people in with the configured providers."""

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from loguru import logger
from msgspec import Struct, structs

from auth.audit import Audit
from auth.registry import Registry, UserRecord, is_printable_text
from auth.sharing import Sharing, record_claims
from auth.signing_keys import RemoteKeys, fetch_url
from auth.tokens import check_times, find_claim, verify_signature
from config.errors import ConfigurationError, FlorilegiumError, NotFound, Unauthenticated, Unavailable
from config.openid import OpenIdProvider, claimed_roles, is_trusted_url, read_group_map
from config.public_http import OutgoingRequestError, open_response
from config.settings import ASYMMETRIC_ALGORITHMS, Settings

# -- client ------------------------------------------------------------------------------------------------------------
# The client of one provider: discovery, the token request, ID tokens and the userinfo endpoint.
#
# Requests go only to the issuer that the operator configured and to the endpoints that its document names, over TLS.
# Redirects are not followed, and every request has a time and a size limit.

# Providers change their endpoints rarely. A change is noticed within the hour.
_OPENID_METADATA_TTL_S = 3600.0

# Discovery documents, key sets and tokens are far smaller.
_OPENID_MAX_BYTES = 1024 * 1024


class OpenIdFailed(FlorilegiumError, status=403):
    """The sign-in failed. The person sees the message; `detail` is logged for the operator. `subject` is the
    person, once the provider has said who it is, and `user_id` the user."""

    def __init__(self, message: str, detail: str = "", *, subject: str = "", user_id: str = "") -> None:
        super().__init__(message)
        self.subject = subject
        self.user_id = user_id
        if detail:
            logger.warning("OpenID sign-in failed: {}", detail)


class ProviderUnavailable(OpenIdFailed, status=503):
    """The provider did not answer as it should."""

    def __init__(self, provider: str, detail: str) -> None:
        super().__init__(
            f"{provider} cannot be used to sign in at the moment; try again later", f"{provider}: {detail}"
        )


# -- flow --------------------------------------------------------------------------------------------------------------
# The `state`, nonce and PKCE verifier of a sign-in at a provider.
#
# They are derived from a secret that is in a cookie of the browser, so that only the browser that started a sign-in
# can complete it, in any number of tabs, and nothing has to be stored meanwhile.


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
    state, nonce, verifier = (
        _encode(hmac.digest(browser_secret.encode(), f"openid {purpose} {text}".encode(), "sha256"))
        for purpose in ("state", "nonce", "verifier")
    )
    return SignInFlow(f"{text}.{state}", nonce, verifier, target)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


T = TypeVar("T")
# An ID token need not have a type. Access tokens and logout tokens have one of their own.
_TOKEN_TYPES = frozenset(("", "jwt"))
_GRANT_TYPES = frozenset(("oauth-id-jag+jwt",))


class ProviderMetadata(Struct, frozen=True, kw_only=True):
    """The part of the discovery document that is used (OpenID Connect Discovery 1.0 section 3)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class _TokenResponse(Struct, frozen=True):
    id_token: str
    access_token: str = ""


class OpenIdClient:
    def __init__(self, settings: Settings, provider: OpenIdProvider, secret: str) -> None:
        self._settings = settings
        self._secret = secret
        self._metadata: ProviderMetadata | None = None
        self._fetched_at = 0.0
        self._keys: RemoteKeys | None = None
        self.provider = provider

    @property
    def redirect_uri(self) -> str:
        return f"{self._settings.base_url}/sign-in/openid/{self.provider.id}/callback"

    async def authorization_url(self, flow: SignInFlow) -> str:
        """Returns the address at the provider where the person signs in."""
        metadata = await self._discover()
        parameters = {
            "response_type": "code",
            "client_id": self.provider.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": " ".join(self.provider.scopes),
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": flow.code_challenge,
            "code_challenge_method": "S256",
        }
        separator = "&" if "?" in metadata.authorization_endpoint else "?"
        return f"{metadata.authorization_endpoint}{separator}{urlencode(parameters, quote_via=quote)}"

    async def redeem(self, flow: SignInFlow, code: str, issuer: str | None, needed: set[str]) -> Mapping[str, Any]:
        """Exchanges the code for an ID token and returns its claims. `issuer` is the `iss` of the response (RFC 9207).

        Claims that are `needed` and missing are read from the userinfo endpoint.
        """
        metadata = await self._discover()
        # A response of another provider, which the person was tricked into using, must not reach this one's token
        # endpoint (mix-up). Each provider also has a redirect URI of its own.
        is_missing = issuer is None and metadata.authorization_response_iss_parameter_supported
        if is_missing or (issuer is not None and issuer != metadata.issuer):
            raise OpenIdFailed("the response comes from another provider; start again")
        values = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": flow.code_verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if not self._secret:
            values["client_id"] = self.provider.client_id
        elif "client_secret_basic" in metadata.token_endpoint_auth_methods_supported:
            # Encodes both parts first (RFC 6749 section 2.3.1): they may contain a colon.
            pair = f"{quote(self.provider.client_id, safe='')}:{quote(self._secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            values |= {"client_id": self.provider.client_id, "client_secret": self._secret}
        body = urlencode(values).encode()
        tokens = self._decode(
            await self._request("POST", metadata.token_endpoint, headers, body), _TokenResponse, "token response"
        )
        claims = await self._verify(metadata, tokens.id_token, flow)
        if needed <= claims.keys() or not metadata.userinfo_endpoint or not tokens.access_token:
            return claims
        authorization = {"Authorization": f"Bearer {tokens.access_token}"}
        userinfo = await self._request("GET", metadata.userinfo_endpoint, authorization)
        more = self._decode(userinfo, dict[str, Any], "userinfo response")
        # They must be about the same person (OpenID Connect Core section 5.3.2).
        if more.get("sub") != claims["sub"]:
            raise self._refused("the userinfo response is about someone else")
        return {**more, **claims}

    async def _discover(self) -> ProviderMetadata:
        is_fresh = time.monotonic() - self._fetched_at < _OPENID_METADATA_TTL_S
        if self._metadata is None or not is_fresh:
            url = f"{self.provider.issuer.removesuffix('/')}/.well-known/openid-configuration"
            metadata = self._decode(await self._request("GET", url, {}), ProviderMetadata, "discovery document")
            if metadata.issuer != self.provider.issuer:
                raise self._unavailable(f"its document has the issuer {metadata.issuer[:200]!r}")
            endpoints = (metadata.authorization_endpoint, metadata.token_endpoint, metadata.jwks_uri)
            if not all(map(is_trusted_url, (*endpoints, metadata.userinfo_endpoint or endpoints[0]))):
                raise self._unavailable("its document names an endpoint without TLS")
            if self._metadata is None or self._metadata.jwks_uri != metadata.jwks_uri:
                fetch = partial(fetch_url, timeout_s=self._settings.fixed.openid_timeout_s, max_bytes=_OPENID_MAX_BYTES)
                self._keys = RemoteKeys(structs.replace(self._settings, jwt_jwks_url=metadata.jwks_uri), fetch)
            self._metadata, self._fetched_at = metadata, time.monotonic()
        assert self._metadata is not None
        return self._metadata

    async def verify_grant(self, assertion: str) -> tuple[Mapping[str, Any], float]:
        """Returns the claims of an ID-JAG of the provider, and when it expires. Raises Unauthenticated. The caller
        checks what it is for."""
        metadata = await self._discover()
        claims, expires_at = await self._verify_signature(assertion, _GRANT_TYPES)
        if claims.get("iss") != metadata.issuer or not isinstance(claims.get("sub"), str) or not claims["sub"]:
            raise Unauthenticated("token not accepted", presented=True, reason="iss or sub is missing")
        return claims, expires_at

    async def _verify_signature(self, token: str, types: frozenset[str]) -> tuple[Mapping[str, Any], float]:
        assert self._keys is not None
        algorithms, max_bytes = frozenset(ASYMMETRIC_ALGORITHMS), self._settings.fixed.token_max_bytes
        try:
            claims = await verify_signature(token, self._keys, algorithms, types, max_bytes)
        except Unavailable as error:
            raise self._unavailable(error.message) from error
        return claims, check_times(claims, time.time(), self._settings.fixed.jwt_leeway_s)[0]

    async def _verify(self, metadata: ProviderMetadata, token: str, flow: SignInFlow) -> Mapping[str, Any]:
        """Verifies an ID token (OpenID Connect Core section 3.1.3.7)."""
        try:
            claims, _ = await self._verify_signature(token, _TOKEN_TYPES)
        except Unauthenticated as error:
            raise self._refused(f"the ID token is not accepted: {error.reason or error.message}") from error
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if claims.get("iss") != metadata.issuer or self.provider.client_id not in audiences:
            raise self._refused("the ID token is for another client or of another issuer")
        if claims.get("azp", self.provider.client_id) != self.provider.client_id:
            raise self._refused("the ID token was issued to another client")
        nonce, subject = claims.get("nonce"), claims.get("sub")
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), flow.nonce.encode()):
            raise self._refused("the nonce of the ID token is not that of this sign-in")
        if not isinstance(subject, str) or not subject:
            raise self._refused("the ID token has no sub")
        return claims

    async def _request(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
        timeout_s = self._settings.fixed.openid_timeout_s
        try:
            async with (
                asyncio.timeout(timeout_s),
                open_response(
                    method, url, headers={"Accept": "application/json", **headers}, body=body, timeout_s=timeout_s
                ) as response,
            ):
                content = await response.read(_OPENID_MAX_BYTES)
                status = response.status
        except (TimeoutError, OutgoingRequestError) as error:
            raise self._unavailable(f"{url} {error!r}") from error
        if status == 400 and method == "POST":
            raise self._refused(f"the code was not accepted: {content[:200]!r}")
        if status != 200:
            raise self._unavailable(f"{url} responded with status {status}: {content[:200]!r}")
        return content

    def _decode(self, body: bytes, kind: type[T], what: str) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._unavailable(f"its {what} cannot be read: {error}") from error

    def _refused(self, detail: str) -> OpenIdFailed:
        title = self.provider.title
        return OpenIdFailed(f"the response of {title} was not accepted; start again", f"{title}: {detail}")

    def _unavailable(self, detail: str) -> ProviderUnavailable:
        return ProviderUnavailable(self.provider.title, detail)


# Time to sign in at a provider, with a second factor or a new password.
_OPENID_FLOW_LIFETIME_S = 900.0

# -- access ------------------------------------------------------------------------------------------------------------
# Who may sign in: the allowed lists of a provider, compared with the claims about a person.

Identity = Mapping[str, Any]


def is_allowed(provider: OpenIdProvider, claims: Identity) -> bool:
    if provider.allow_everyone:
        return True
    # Only an address that the provider has verified: anyone can claim an address.
    email, is_verified = claims.get("email"), claims.get("email_verified") in (True, "true")
    email = email.casefold() if isinstance(email, str) and email.count("@") == 1 and is_verified else ""
    emails = {text.casefold() for text in provider.allowed_emails}
    domains = {text.casefold().removeprefix("@") for text in provider.allowed_domains}
    is_named = bool(email) and (email in emails or email.rpartition("@")[2] in domains)
    # The groups or roles of a claim: a list, one name, or an object whose names they are (Zitadel).
    value = find_claim(claims, provider.groups_claim)
    groups = [value] if isinstance(value, str) else value if isinstance(value, list | dict) else ()
    return is_named or any(isinstance(name, str) and name in provider.allowed_groups for name in groups)


# OpenID Connect Core section 5.1: the name by which the person wishes to be called.
_NAME_CLAIM = "preferred_username"


class OpenIdSignIn:
    def __init__(self, settings: Settings, registry: Registry, audit: Audit | None = None) -> None:
        self._settings = settings
        self._registry = registry
        self._audit = audit
        self._clients = {
            provider.id: OpenIdClient(settings, provider, _read_secret(provider))
            for provider in settings.openid_providers
        }

    async def start(self, provider_id: str, browser_secret: str, target: str) -> str:
        """Returns the address at the provider. `browser_secret` is in a cookie; `target` is where to go afterwards."""
        client = self._client(provider_id)
        payload = _StatePayload(secrets.token_urlsafe(16), provider_id, target, int(time.time()))
        text = _encode(msgspec.json.encode(payload))
        return await client.authorization_url(_flow(browser_secret, text, target))

    async def complete(
        self, provider_id: str, browser_secret: str, response: Mapping[str, str]
    ) -> tuple[UserRecord, str]:
        """Returns the user and where to go, from the parameters with which the provider sent the browser back."""
        client = self._client(provider_id)
        state, now = response.get("state", ""), time.time()
        flow = resume_flow(browser_secret, provider_id, state, now, _OPENID_FLOW_LIFETIME_S)
        if "error" in response or not response.get("code"):
            # Only the code is shown, because anyone can make up the address that the browser was sent to.
            error = response.get("error", "")
            is_code = error.isascii() and error.replace("_", "").isalnum() and len(error) <= 40
            code = error if is_code else "no code"
            raise OpenIdFailed(f"{client.provider.title} did not sign you in ({code}); start again")
        provider, needed = client.provider, {self._name_claim(client.provider)}
        if provider.allowed_emails or provider.allowed_domains:
            needed.add("email")
        if provider.allowed_groups or provider.group_map:
            needed.add(provider.groups_claim)
        claims = await client.redeem(flow, response["code"], response.get("iss"), needed)
        user = await self.user_of(provider_id, claims)
        if provider.group_map:
            roles = claimed_roles(read_group_map(provider.group_map), find_claim(claims, provider.groups_claim))
            changes = await Sharing(self._registry.database).apply_claims(user.id, provider.issuer, roles, now)
            record_claims(self._audit, user.id, provider.issuer, changes)
        return user, flow.target

    async def verify_grant(self, provider_id: str, assertion: str) -> tuple[Mapping[str, Any], float]:
        """Like `OpenIdClient.verify_grant`."""
        return await self._client(provider_id).verify_grant(assertion)

    async def user_of(self, provider_id: str, claims: Mapping[str, Any]) -> UserRecord:
        """Finds the user by issuer and `sub`, like the user of a token, or creates one. Raises OpenIdFailed unless the
        person may sign in."""
        provider, subject = self._client(provider_id).provider, claims["sub"]
        if not is_allowed(provider, claims):
            raise OpenIdFailed(
                f"your account at {provider.title} is not allowed to use this server; ask its operator",
                f"{provider.title}: {subject[:80]!r} is in none of the allowed lists",
                subject=subject,
            )
        user = await self._registry.user_by_identity(provider.issuer, subject)
        if user is None and provider.issuer == self._settings.issuer:
            user = await self._registry.user_by_identity("", subject)
        if user is None:
            name = find_claim(claims, self._name_claim(provider))
            name = name if isinstance(name, str) and is_printable_text(name) else ""
            user = await self._registry.ensure_user(provider.issuer, subject, name, provider.role)
        if user.is_disabled:
            raise OpenIdFailed(
                "your account on this server is disabled; ask its operator", subject=subject, user_id=user.id
            )
        return user

    def _name_claim(self, provider: OpenIdProvider) -> str:
        return provider.name_claim or self._settings.jwt_name_claim or _NAME_CLAIM

    def _client(self, provider_id: str) -> OpenIdClient:
        client = self._clients.get(provider_id)
        if client is None:
            raise NotFound("provider", provider_id[:40])
        return client


def _read_secret(provider: OpenIdProvider) -> str:
    if not provider.client_secret_file:
        return provider.client_secret
    try:
        secret = Path(provider.client_secret_file).read_text().removesuffix("\n").removesuffix("\r")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"openid_providers {provider.id!r}: client_secret_file cannot be read: {error}"
        ) from error
    if not secret:
        raise ConfigurationError(f"openid_providers {provider.id!r}: client_secret_file is empty")
    return secret
