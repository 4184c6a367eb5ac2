"""A clock that is set, forwards or backwards, while the server runs."""

import asyncio
import time
from pathlib import Path

import pytest

from auth.authenticator import RegistryAuthenticator
from auth.rate_limits import RateLimits, in_process_limits
from auth.registry import Registry
from auth.signing_keys import load_signing_keys
from auth.tokens import JwtVerifier
from config.paths import DataRoot
from server.stores import control_location
from tests.live import live, make_settings
from tests.server.clients import LegacyClient, handshake
from tests.server.http_client import WAIT_MAX_S
from tests.server.sample_catalog import SampleCatalog


class _WallClock:
    """The clock of the system, which the test can set."""

    def __init__(self) -> None:
        self.offset_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.offset_s


@pytest.mark.parametrize("jump_s", [86_400.0, -86_400.0], ids=["forwards", "backwards"])
async def test_a_good_token_works_again_after_the_clock_was_wrong(
    tmp_path: Path, samples: SampleCatalog, jump_s: float
) -> None:
    settings = make_settings(tmp_path, token_cache_ttl_s=0, token_failure_cache_ttl_s=0.05)
    clock, data_root = _WallClock(), DataRoot(tmp_path)
    data_root.prepare()
    async with Registry.open(control_location(settings, data_root)) as registry:
        keys = load_signing_keys(settings)
        assert keys is not None
        failures = RateLimits.from_settings(settings, in_process_limits()).failures
        authenticator = RegistryAuthenticator(settings, registry, failures, JwtVerifier(settings, keys), clock)
        async with live(settings, catalog=samples.catalog, authenticator=authenticator) as server:
            ada, ben = [LegacyClient(server, await server.bearer(name)) for name in ("ada", "ben")]
            before = (await ada.post(handshake())).status
            clock.offset_s = jump_s
            wrong = (await ada.post(handshake())).status
            clock.offset_s = 0
            other = (await ben.post(handshake())).status
            async with asyncio.timeout(WAIT_MAX_S):
                while (await ada.post(handshake())).status != 200:
                    await asyncio.sleep(0.02)

    assert (before, wrong, other) == (200, 401, 200)
