"""Shared by the authentication tests: a manual clock, settings, and an authenticator with a real registry."""

from pathlib import Path
from typing import Any

from auth.authenticator import RegistryAuthenticator
from auth.rate_limits import RateLimits, in_process_limits
from auth.registry import Registry
from auth.signing_keys import JwksFetch, load_signing_keys
from auth.tokens import JwtVerifier
from config.settings import Settings, check
from tests.build_settings import build_settings

NOW = 1_800_000_000.0
SECRET = "an HS256 secret of more than 32 bytes"
ISSUER = "https://id.example.com/realms/main"
PUBLIC_URL = "https://kb.example.com"


class FakeClock:
    """A clock that the test advances."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def make_settings(**changes: Any) -> Settings:
    """Returns validated settings, with unlimited failures unless a test limits them."""
    settings = build_settings(**{"public_url": PUBLIC_URL, "rate_failures_per_minute": 0, **changes})
    check(settings)
    return settings


def make_authenticator(
    settings: Settings, registry: Registry, clock: FakeClock, fetch: JwksFetch | None = None
) -> RegistryAuthenticator:
    keys = load_signing_keys(settings, fetch, clock)
    return RegistryAuthenticator(
        settings,
        registry,
        RateLimits.from_settings(settings, in_process_limits(clock)).failures,
        JwtVerifier(settings, keys) if keys else None,
        clock,
        clock,
    )


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)
