"""`florilegium token`: access tokens signed with the configured secret, for scripts and for trying things out."""

import sys
import time

import click

from auth.api_keys import has_key_prefix
from auth.key_sources import load_signing_keys
from auth.principal import SCOPES
from auth.registry import Registry, UserRecord
from auth.tokens import Claims, JwtVerifier, mint_token
from config.errors import ConfigurationError, Conflict, InvalidParams
from config.settings import Settings
from server.cli.control import administer, find_user
from server.cli.keys import DEFAULT_SCOPES
from server.cli.options import Given, json_option, setting_options
from server.cli.output import instant, print_json
from server.cli.times import parse_duration


@click.group()
def token() -> None:
    """Mint and revoke access tokens (JWT)."""


@token.command("mint")
@click.argument("user")
@click.option("--scope", "scopes", multiple=True, default=DEFAULT_SCOPES, show_default=True, help=", ".join(SCOPES))
@click.option("--lifetime", default="1h", show_default=True, help="How long the token is good: 30m, 12h, 7d.")
@click.option("--client", default="florilegium-cli", show_default=True, help="The client that the token names.")
@json_option
@setting_options("data_dir")
def mint(given: Given, user: str, scopes: tuple[str, ...], lifetime: str, client: str, as_json: bool) -> None:
    """Print an access token of USER. Needs jwt_secret (HS256)."""
    settings, now = given.load().settings, time.time()
    lifetime_s = parse_duration("lifetime", lifetime)
    if not settings.jwt_secret:
        raise ConfigurationError(_no_secret(settings))
    subject = _subject(settings, administer(settings, lambda registry: find_user(registry, user)))
    text = mint_token(settings, subject, scopes, lifetime_s=lifetime_s, now=now, client_id=client)
    if as_json:
        expires_at = instant(now + lifetime_s)
        print_json({"token": text, "user": user, "scopes": sorted(set(scopes)), "expires_at": expires_at})
    else:
        click.echo(text)


@token.command()
@click.argument("text", metavar="TOKEN")
@setting_options("data_dir")
def revoke(given: Given, text: str) -> None:
    """Revoke TOKEN (- reads it from stdin, which keeps it out of the process list)."""
    settings = given.load().settings
    credential = sys.stdin.readline(settings.token_max_bytes + 2).strip() if text == "-" else text
    if has_key_prefix(credential):
        raise InvalidParams("TOKEN: got an API key, expected a JWT; `florilegium key revoke ID` revokes keys")

    async def work(registry: Registry) -> Claims:
        claims = await _verifier(settings).verify(credential, time.time())
        await registry.revoke_token(claims.identity, claims.expires_at)
        return claims

    claims = administer(settings, work, creates=True)
    click.echo(f"revoked token {claims.identity} of {claims.subject}")


def _no_secret(settings: Settings) -> str:
    if settings.has_jwt_key:
        return "tokens are signed by your identity provider, which holds the private key; mint them there"
    return "tokens are minted with a shared secret, and jwt_secret is not set; set FLORILEGIUM_JWT_SECRET"


def _subject(settings: Settings, user: UserRecord) -> str:
    """The name under which tokens of the configured issuer know the user."""
    if user.is_disabled:
        raise Conflict(f"the user {user.name!r} is disabled; `florilegium user enable {user.name}` enables it")
    if user.issuer not in ("", settings.issuer):
        raise Conflict(f"the user {user.name!r} belongs to the issuer {user.issuer!r}, and ours is {settings.issuer!r}")
    return user.subject


def _verifier(settings: Settings) -> JwtVerifier:
    keys = load_signing_keys(settings)
    if keys is None:
        raise ConfigurationError("no JWT key is configured, so no token is accepted and none needs revoking")
    return JwtVerifier(settings, keys)
