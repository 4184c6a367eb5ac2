"""What the identity tests share: a clock that stands still, settings, and an authenticator on a real registry."""

from pathlib import Path
from typing import Any

from auth.authenticator import Authenticator
from auth.key_table import Fetch
from auth.rate_limits import limits_of
from auth.registry import Registry
from auth.signing_keys import signing_keys
from auth.tokens import JwtVerifier
from config.settings import Settings, check

NOW = 1_800_000_000.0
SECRET = "an HS256 secret that is long enough for everybody"
ISSUER = "https://id.example.com/realms/main"
PUBLIC_URL = "https://kb.example.com"


class FakeClock:
    """Time as the test decides it."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def make_settings(**changes: Any) -> Settings:
    """Settings that pass their own check, with unlimited failures unless a test limits them."""
    settings = Settings(**{"public_url": PUBLIC_URL, "rate_failures_per_minute": 0, **changes})
    check(settings)
    return settings


def make_authenticator(
    settings: Settings, registry: Registry, clock: FakeClock, fetch: Fetch | None = None
) -> Authenticator:
    keys = signing_keys(settings, fetch, clock)
    return Authenticator(
        settings,
        registry,
        limits_of(settings, clock).failures,
        JwtVerifier(settings, keys) if keys else None,
        clock,
    )


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)
