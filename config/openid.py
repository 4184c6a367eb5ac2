"""The settings of one OpenID Connect provider, a table `[[openid_providers]]` in the TOML file."""

import re
from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct

_ID = re.compile(r"[a-z0-9-]{1,40}\Z")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class OpenIdProvider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider at which people can sign in.

    `id` is part of the redirect URI, and `name` is shown on the button. People in one of the allowed lists may sign in;
    with `allow_everyone`, everyone with an account there. `role` is the role of users who sign in for the first time.
    `group_map` says which groups of this server those in `groups_claim` are, as `VALUE=GROUP ROLE`.
    With `assertion_grants`, the provider also decides which clients may act for them, without asking them (ID-JAG).
    """

    id: str
    issuer: str
    client_id: str
    name: str = ""
    client_secret: str = ""
    client_secret_file: str = ""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    allowed_emails: tuple[str, ...] = ()
    allowed_domains: tuple[str, ...] = ()
    allowed_groups: tuple[str, ...] = ()
    groups_claim: str = "groups"
    group_map: tuple[str, ...] = ()
    name_claim: str = ""
    allow_everyone: bool = False
    role: Literal["reader", "writer", "admin"] = "writer"
    assertion_grants: bool = False

    @property
    def title(self) -> str:
        return self.name or self.id


GroupRole = Literal["reader", "writer", "manager"]
_ROLES: dict[str, GroupRole] = {"reader": "reader", "writer": "writer", "manager": "manager"}
_RANKS = {"reader": 0, "writer": 1, "manager": 2}


def read_group_map(entries: tuple[str, ...]) -> dict[str, tuple[str, GroupRole]]:
    """Returns the group and the role of each value of a claim. An entry is `VALUE=GROUP ROLE`, or `VALUE=GROUP` for
    readers. Raises ValueError with an entry that is neither."""
    groups: dict[str, tuple[str, GroupRole]] = {}
    for entry in entries:
        # At the last equals sign: a value may be a distinguished name, which has some.
        value, _, target = entry.rpartition("=")
        group, _, role = target.strip().partition(" ")
        found = _ROLES.get(role.strip() or "reader")
        if not value.strip() or not group or found is None:
            raise ValueError(entry)
        groups[value.strip()] = (group, found)
    return groups


def claimed_roles(groups: dict[str, tuple[str, GroupRole]], *claims: Any) -> dict[str, GroupRole]:
    """Returns the roles that the values of claims give, by group: of several the highest. A claim is a text, a list, or
    an object whose names are the values (Zitadel)."""
    roles: dict[str, GroupRole] = {}
    for claim in claims:
        values = [claim] if isinstance(claim, str) else claim if isinstance(claim, list | dict) else ()
        for value in values:
            if isinstance(value, str) and value in groups:
                group, role = groups[value]
                if group not in roles or _RANKS[role] > _RANKS[roles[group]]:
                    roles[group] = role
    return roles


def is_trusted_url(url: str) -> bool:
    """Whether requests may be sent to a URL: over TLS, or to this machine."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # parsed and validated only when accessed
    except ValueError:
        return False
    is_local = parts.scheme == "http" and parts.hostname in _LOOPBACK
    is_plain = url.isascii() and url.isprintable() and "@" not in parts.netloc
    return is_plain and bool(parts.hostname) and (parts.scheme == "https" or is_local)


def provider_problems(providers: tuple[OpenIdProvider, ...]) -> Iterator[str]:
    """Yields what is wrong with the providers, as a sentence for the operator."""
    ids = [provider.id for provider in providers]
    yield from (f"openid_providers: the id {id_!r} is used twice" for id_ in set(ids) if ids.count(id_) > 1)
    for provider in providers:
        field = f"openid_providers {provider.id[:40]!r}"
        if (
            not provider.id.isascii()
            or not provider.id.replace("-", "").isalnum()
            or provider.id != provider.id.lower()
        ):
            yield f"{field}: expected an id of the characters a-z 0-9 -"
        if not is_trusted_url(provider.issuer) or set("?#") & set(provider.issuer):
            yield f"{field}: expected an https:// URL without a query as issuer, got {provider.issuer[:80]!r}"
        if not provider.client_id:
            yield f"{field}: client_id is empty"
        if provider.client_secret and provider.client_secret_file:
            yield f"{field}: client_secret and client_secret_file are both set; remove one of them"
        if "openid" not in provider.scopes:
            yield f"{field}: expected the scope openid among scopes"
        is_limited = bool(provider.allowed_emails or provider.allowed_domains or provider.allowed_groups)
        if not is_limited and not provider.allow_everyone:
            yield (
                f"{field}: everyone with an account at {provider.issuer} could sign in; set allowed_emails, "
                "allowed_domains or allowed_groups, or set allow_everyone = true"
            )
        try:
            read_group_map(provider.group_map)
        except ValueError as error:
            yield f"{field}: group_map: expected VALUE=GROUP ROLE, such as staff=team writer, got {str(error)[:80]!r}"
        if is_limited and provider.allow_everyone:
            yield f"{field}: allow_everyone makes the allowed lists useless; remove one of them"
