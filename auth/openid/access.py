"""Who may sign in: the allowed lists of a provider, compared with the claims about a person."""

from collections.abc import Mapping
from typing import Any

from config.openid import OpenIdProvider

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
