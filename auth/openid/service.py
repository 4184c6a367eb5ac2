"""Signs people in with the configured providers."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from auth.openid.access import find_claim, is_allowed, needed_claims
from auth.openid.client import OpenIdClient
from auth.openid.errors import OpenIdFailed
from auth.openid.flow import resume_flow, start_flow
from auth.registry import Registry, UserRecord
from auth.validation import is_printable_text
from config.errors import ConfigurationError, NotFound
from config.openid import OpenIdProvider
from config.settings import Settings

# OpenID Connect Core section 5.1: the name by which the person wishes to be called.
_NAME_CLAIM = "preferred_username"


class OpenIdSignIn:
    def __init__(self, settings: Settings, registry: Registry, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._registry = registry
        self._clock = clock
        self._clients = {
            provider.id: OpenIdClient(settings, provider, _read_secret(provider), clock)
            for provider in settings.openid_providers
        }

    @property
    def providers(self) -> tuple[OpenIdProvider, ...]:
        return self._settings.openid_providers

    async def start(self, provider_id: str, browser_secret: str, target: str) -> str:
        """Returns the address at the provider. `browser_secret` is in a cookie; `target` is where to go afterwards."""
        client = self._client(provider_id)
        return await client.authorization_url(start_flow(browser_secret, provider_id, target, self._clock()))

    async def complete(
        self, provider_id: str, browser_secret: str, response: Mapping[str, str]
    ) -> tuple[UserRecord, str]:
        """Returns the user and where to go, from the parameters with which the provider sent the browser back."""
        client = self._client(provider_id)
        flow = resume_flow(
            browser_secret,
            provider_id,
            response.get("state", ""),
            self._clock(),
            self._settings.openid_flow_lifetime_s,
        )
        if "error" in response or not response.get("code"):
            raise _provider_error(client.provider, response.get("error", ""))
        name_claim = client.provider.name_claim or self._settings.jwt_name_claim or _NAME_CLAIM
        needed = needed_claims(client.provider, name_claim)
        claims = await client.redeem(flow, response["code"], response.get("iss"), needed)
        return await self._user_of(client.provider, claims, name_claim), flow.target

    async def _user_of(self, provider: OpenIdProvider, claims: Mapping[str, Any], name_claim: str) -> UserRecord:
        """Finds the user by issuer and `sub`, like the user of a token, or creates one."""
        subject = claims["sub"]
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
            name = find_claim(claims, name_claim)
            name = name if isinstance(name, str) and is_printable_text(name) else ""
            user = await self._registry.ensure_user(provider.issuer, subject, name, provider.role)
        if user.is_disabled:
            raise OpenIdFailed(
                "your account on this server is disabled; ask its operator", subject=subject, user_id=user.id
            )
        return user

    def _client(self, provider_id: str) -> OpenIdClient:
        client = self._clients.get(provider_id)
        if client is None:
            raise NotFound("provider", provider_id[:40])
        return client


def _provider_error(provider: OpenIdProvider, error: str) -> OpenIdFailed:
    """Only the code of an error is shown, because anyone can make up the address that the browser was sent to."""
    code = error if error.isascii() and error.replace("_", "").isalnum() and len(error) <= 40 else "no code"
    return OpenIdFailed(f"{provider.title} did not sign you in ({code}); start again")


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
