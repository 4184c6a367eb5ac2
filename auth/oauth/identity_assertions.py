"""Enterprise sign-in: an identity provider names its user and the client, and nobody is asked for consent.

The client sends an Identity Assertion JWT Authorization Grant (ID-JAG, draft-ietf-oauth-identity-assertion-authz-grant)
to the token endpoint as a JWT bearer grant (RFC 7523). Providers with `assertion_grants` are trusted to issue them. MCP
calls this enterprise-managed authorization; it requires that an assertion works once. The draft advises against refresh
tokens: the client gets a new assertion from the provider, which can refuse it.
"""

import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from auth.context import ADMIN
from auth.control_database import ControlConnection, ControlDatabase
from auth.oauth import clients, grants
from auth.oauth.client_assertions import use_once
from auth.oauth.grants import GrantRequest, OAuthError, Resources, invalid_grant
from auth.oauth.tokens import IssuedTokens, OAuthTokens
from auth.openid import OpenIdFailed, OpenIdSignIn
from auth.tokens import unverified_claims
from config.errors import Unauthenticated
from config.settings import Settings

# Assertions are exchanged at once; providers issue them for some minutes. Used ones are remembered until they expire.
_LIFETIME_MAX_S = 3600.0
# Claims that restrict what the assertion is good for in ways that this server does not know. To ignore one would grant
# more than the provider did: a key that the client has to prove (`cnf`), or details beyond scopes. Without regard to
# `tenant`, two people could have the same `sub`.
_UNSUPPORTED_CLAIMS = ("authorization_details", "cnf", "tenant")


class VerifiedAssertion(Struct, frozen=True):
    """An assertion of a trusted provider for this server and this client."""

    provider_id: str
    claims: Mapping[str, Any]
    expires_at: float

    @property
    def identity(self) -> str:
        return f"{self.claims['iss']} {self.claims['sub']}"


class IdentityAssertions:
    def __init__(
        self,
        settings: Settings,
        database: ControlDatabase,
        openid: OpenIdSignIn,
        resources: Resources,
        tokens: OAuthTokens,
    ) -> None:
        self._settings = settings
        self._database = database
        self._openid = openid
        self._resources = resources
        self._tokens = tokens
        self._issuers = {one.issuer: one.id for one in settings.openid_providers if one.assertion_grants}

    @property
    def is_enabled(self) -> bool:
        return bool(self._issuers)

    async def verify(self, assertion: str, client_id: str) -> VerifiedAssertion:
        """Raises `invalid_grant` for everything that is wrong with the assertion itself."""
        try:
            issuer = unverified_claims(assertion, self._settings.fixed.token_max_bytes).get("iss")
            provider_id = self._issuers.get(issuer) if isinstance(issuer, str) else None
            if provider_id is None:
                raise invalid_grant("assertion: expected one of a provider that this server trusts")
            claims, expires_at = await self._openid.verify_grant(provider_id, assertion)
            audience = claims.get("aud")
            # A list must have exactly this element, so that no other server accepts the same assertion.
            if audience not in (self._settings.base_url, [self._settings.base_url]):
                raise invalid_grant(f"assertion: expected aud {self._settings.base_url}")
            if claims.get("client_id") != client_id:
                raise invalid_grant("assertion: expected the client_id of the client that sends it")
            if not isinstance(claims.get("jti"), str) or not claims["jti"] or "iat" not in claims:
                raise invalid_grant("assertion: expected jti and iat")
            if expires_at - time.time() > _LIFETIME_MAX_S + self._settings.fixed.jwt_leeway_s:
                raise invalid_grant(f"assertion: expected exp within {_LIFETIME_MAX_S:g} s")
            if unsupported := [name for name in _UNSUPPORTED_CLAIMS if name in claims]:
                raise invalid_grant(f"assertion: the claim {unsupported[0]} is not supported")
        except Unauthenticated as error:
            raise invalid_grant(f"assertion: {error.reason or error.message}") from error
        return VerifiedAssertion(provider_id, claims, expires_at)

    async def exchange(
        self,
        assertion: VerifiedAssertion,
        client: clients.OAuthClient,
        requested: Mapping[str, str],
        resources: tuple[str, ...],
    ) -> IssuedTokens:
        """Returns an access token for what the assertion grants, or less if the request asks for less. Like a sign-in
        at the provider, it creates the user if necessary."""
        claims = assertion.claims
        resource, scopes = (
            self._resource(claims.get("resource"), resources),
            _scopes(claims, requested.get("scope", "")),
        )
        if not await use_once(self._database, f"{claims['iss']} {claims['jti']}", assertion.expires_at):
            raise invalid_grant("assertion: already used")
        try:
            user = await self._openid.user_of(assertion.provider_id, claims)
        except OpenIdFailed as error:
            raise invalid_grant(f"assertion: {error.message}") from error
        request = GrantRequest(
            user=user,
            client_id=client.id,
            client_name=client.name,
            # The client is not answered by a browser. An empty address matches no later authorization request.
            redirect_uri="",
            resource=resource,
            scopes=clients.grantable_scopes(scopes, user.role),
            auth_method=client.metadata.token_endpoint_auth_method,
        )
        now, grants_max = time.time(), self._settings.fixed.oauth_connections_max_per_user

        def operation(db: ControlConnection) -> IssuedTokens:
            # One connection for all assertions, unless the person ended it.
            grant = grants.find_covering(db, request)
            if grant is None:
                grant = grants.select_grant(db, grants.insert_grant(db, request, now, grants_max))
            assert grant is not None
            return self._tokens.issue(db, grant, request.scopes, has_refresh_token=False)

        return await self._database.write(operation)

    def _resource(self, claim: Any, requested: tuple[str, ...]) -> grants.TokenResource:
        values = [] if claim is None else claim if isinstance(claim, list) else [claim]
        if not all(isinstance(value, str) for value in values):
            raise invalid_grant("assertion: expected resource to be a URI or a list of URIs")
        try:
            granted = self._resources.find(values or requested)
        except OAuthError as error:
            if not values:
                raise
            # A mismatch of the assertion, not of the request (MCP enterprise-managed authorization section 7.6.2).
            raise invalid_grant(f"assertion: {error.message}") from error
        if requested and self._resources.find(requested) != granted:
            raise OAuthError("invalid_target", f"resource: expected {granted.url}, which the assertion grants")
        return granted


def _scopes(claims: Mapping[str, Any], requested: str) -> frozenset[str]:
    """A person who administrates this server has to allow that themselves, on the consent page."""
    claim = claims.get("scope", "")
    if not isinstance(claim, str):
        raise invalid_grant("assertion: expected scope to be a text")
    granted = clients.known_scopes(claim) if "scope" in claims else clients.DEFAULT_SCOPES
    granted -= {ADMIN}
    if not granted:
        raise invalid_grant(f"assertion: expected a scope of this server other than {ADMIN}")
    return granted & clients.requested_scopes(requested) if requested else granted
