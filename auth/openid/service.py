"""Signs people in with the configured providers."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auth.openid.client import OpenIdClient, OpenIdFailed, resume_flow, start_flow
from auth.registry import Registry, UserRecord, is_printable_text
from config.errors import ConfigurationError, NotFound
from config.openid import OpenIdProvider
from config.settings import Settings

# Time to sign in at a provider, with a second factor or a new password.
_OPENID_FLOW_LIFETIME_S = 900.0

# -- access ------------------------------------------------------------------------------------------------------------
# Who may sign in: the allowed lists of a provider, compared with the claims about a person.

Identity = Mapping[str, Any]


def needed_claims(provider: OpenIdProvider, name_claim: str) -> set[str]:
    """Returns the claims that the decision and the name of the user need."""
    has_emails = bool(provider.allowed_emails or provider.allowed_domains)
    claims = {name_claim} | ({"email"} if has_emails else set())
    return claims | ({provider.groups_claim} if provider.allowed_groups else set())


def is_allowed(provider: OpenIdProvider, claims: Identity) -> bool:
    if provider.allow_everyone:
        return True
    email = verified_email(claims)
    emails = {text.casefold() for text in provider.allowed_emails}
    domains = {text.casefold().removeprefix("@") for text in provider.allowed_domains}
    is_named = bool(email) and (email in emails or email.rpartition("@")[2] in domains)
    return is_named or not groups_of(claims, provider.groups_claim).isdisjoint(provider.allowed_groups)


def verified_email(claims: Identity) -> str:
    """Returns the address, or an empty text unless the provider has verified it: anyone can claim an address."""
    email, is_verified = claims.get("email"), claims.get("email_verified")
    if not isinstance(email, str) or email.count("@") != 1 or is_verified not in (True, "true"):
        return ""
    return email.casefold()


def groups_of(claims: Identity, claim: str) -> frozenset[str]:
    """Returns the groups or roles in a claim: a list, one name, or an object whose names they are (Zitadel)."""
    value = find_claim(claims, claim)
    if isinstance(value, str):
        return frozenset((value,))
    if isinstance(value, list | dict):
        return frozenset(name for name in value if isinstance(name, str))
    return frozenset()


def find_claim(claims: Identity, claim: str) -> Any:
    """Returns a claim by its name, which may contain dots (Auth0), or by a path such as `realm_access.roles`
    (Keycloak)."""
    if claim in claims:
        return claims[claim]
    value: Any = claims
    for name in claim.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


# OpenID Connect Core section 5.1: the name by which the person wishes to be called.
_NAME_CLAIM = "preferred_username"


class OpenIdSignIn:
    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._clients = {
            provider.id: OpenIdClient(settings, provider, _read_secret(provider))
            for provider in settings.openid_providers
        }

    @property
    def providers(self) -> tuple[OpenIdProvider, ...]:
        return self._settings.openid_providers

    async def start(self, provider_id: str, browser_secret: str, target: str) -> str:
        """Returns the address at the provider. `browser_secret` is in a cookie; `target` is where to go afterwards."""
        client = self._client(provider_id)
        return await client.authorization_url(start_flow(browser_secret, provider_id, target, time.time()))

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
        name_claim = client.provider.name_claim or self._settings.jwt_name_claim or _NAME_CLAIM
        needed = needed_claims(client.provider, name_claim)
        claims = await client.redeem(flow, response["code"], response.get("iss"), needed)
        # Finds the user by issuer and `sub`, like the user of a token, or creates one.
        subject = claims["sub"]
        if not is_allowed(client.provider, claims):
            raise OpenIdFailed(
                f"your account at {client.provider.title} is not allowed to use this server; ask its operator",
                f"{client.provider.title}: {subject[:80]!r} is in none of the allowed lists",
                subject=subject,
            )
        user = await self._registry.user_by_identity(client.provider.issuer, subject)
        if user is None and client.provider.issuer == self._settings.issuer:
            user = await self._registry.user_by_identity("", subject)
        if user is None:
            name = find_claim(claims, name_claim)
            name = name if isinstance(name, str) and is_printable_text(name) else ""
            user = await self._registry.ensure_user(client.provider.issuer, subject, name, client.provider.role)
        if user.is_disabled:
            raise OpenIdFailed(
                "your account on this server is disabled; ask its operator", subject=subject, user_id=user.id
            )
        return user, flow.target

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
