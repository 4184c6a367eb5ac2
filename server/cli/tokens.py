"""`florilegium token`: mints and revokes access tokens signed with the configured secret, for scripts and tests."""

import sys
import time

import click

from auth.context import SCOPES
from auth.registry import Registry, has_key_prefix
from auth.signing_keys import load_signing_keys
from auth.tokens import Claims, JwtVerifier, mint_token
from config.errors import ConfigurationError, Conflict, InvalidParams
from server.cli.keys import DEFAULT_SCOPES
from server.cli.lazy_group import SettingsOverrides
from server.cli.local_library import find_user, run_with_registry
from server.cli.options import admin_options, load_for_change
from server.cli.output import format_time, parse_duration, print_result


@click.group()
def token() -> None:
    """Mint and revoke access tokens (JWT)."""


@token.command("mint")
@click.argument("user")
@click.option("--scope", "scopes", multiple=True, default=DEFAULT_SCOPES, show_default=True, help=", ".join(SCOPES))
@click.option("--lifetime", default="1h", show_default=True, help="How long the token is valid: 30m, 12h, 7d.")
@click.option("--client", default="florilegium-cli", show_default=True, help="Client name in the token.")
@admin_options
def mint(
    overrides: SettingsOverrides, user: str, scopes: tuple[str, ...], lifetime: str, client: str, as_json: bool
) -> None:
    """Print an access token for USER. Requires jwt_secret (HS256)."""
    settings, now = overrides.load().settings, time.time()
    lifetime_s = parse_duration("lifetime", lifetime)
    if not settings.jwt_secret:
        if settings.has_jwt_key:
            raise ConfigurationError("tokens are signed by your identity provider; request one there")
        raise ConfigurationError("jwt_secret is not set; set FLORILEGIUM_JWT_SECRET to mint tokens")
    record = run_with_registry(settings, lambda registry: find_user(registry, user))
    if record.is_disabled:
        raise Conflict(f"user {user!r} is disabled; run `florilegium user enable {user}`")
    # The same subject of another issuer is another person.
    if record.issuer not in ("", settings.issuer):
        raise Conflict(
            f"user {user!r} belongs to issuer {record.issuer!r}, but the configured issuer is {settings.issuer!r}"
        )
    text = mint_token(settings, record.subject, scopes, lifetime_s=lifetime_s, now=now, client_id=client)
    data = {"token": text, "user": user, "scopes": sorted(set(scopes)), "expires_at": format_time(now + lifetime_s)}
    print_result(data, text, as_json=as_json)


@token.command()
@click.argument("text", metavar="TOKEN")
@admin_options
def revoke(overrides: SettingsOverrides, text: str, as_json: bool) -> None:
    """Revoke TOKEN (- reads it from stdin, which keeps it out of the process list)."""
    settings = load_for_change(overrides)
    # One byte more than allowed and the newline, so that a token that is too long is refused and not cut.
    credential = sys.stdin.readline(settings.fixed.token_max_bytes + 2).strip() if text == "-" else text
    if has_key_prefix(credential):
        raise InvalidParams("TOKEN: expected a JWT, got an API key; `florilegium key revoke ID` revokes keys")

    async def work(registry: Registry) -> Claims:
        keys = load_signing_keys(settings)
        if keys is None:
            raise ConfigurationError("no JWT key is configured, so no token is accepted")
        # Only a token that would be accepted can be revoked. The entry is not needed any more once it has expired.
        claims = await JwtVerifier(settings, keys).verify(credential, time.time())
        await registry.revoke_token(claims.identity, claims.expires_at)
        return claims

    claims = run_with_registry(settings, work, creates=True)
    about, expires_at = {"id": claims.identity, "subject": claims.subject}, format_time(claims.expires_at)
    data = {**about, "state": "revoked", "expires_at": expires_at}
    print_result(data, f"Revoked token {claims.identity} of {claims.subject}.", as_json=as_json)
