"""Keys from a JWKS URL: how often it is fetched, and what happens when it is unavailable."""

import asyncio
import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from auth.signing_keys import RemoteKeys, fetch_url
from config.errors import Unavailable
from tests.auth.auth_fixture import ISSUER, FakeClock, make_settings
from tests.auth.issuers import eddsa, es256, jwks
from tests.cases import each_case

URL = "https://id.example.com/keys"


class Provider:
    """An identity provider whose response and availability are set by the test."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.is_down = False
        self.fetches = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, url: str) -> bytes:
        assert url == URL
        self.fetches += 1
        await self.gate.wait()
        if self.is_down:
            raise Unavailable("the provider is down")
        return self.body


def remote_keys(provider: Provider, clock: FakeClock, **changes: Any) -> RemoteKeys:
    settings = make_settings(jwt_jwks_url=URL, jwt_issuer=ISSUER, **changes)
    return RemoteKeys(settings, provider, clock)


async def test_set_is_fetched_at_the_first_token_and_cached(clock: FakeClock) -> None:
    provider = Provider(jwks(es256(), eddsa()))
    keys = remote_keys(provider, clock)
    assert provider.fetches == 0

    for _ in range(10):
        assert await keys.find("ES256", "es")
        assert await keys.find("EdDSA", "ed")
    assert provider.fetches == 1

    clock.advance(599)
    assert await keys.find("ES256", "es")
    assert provider.fetches == 1
    clock.advance(1)
    assert await keys.find("ES256", "es")
    assert provider.fetches == 2


async def test_many_unknown_kids_cause_one_fetch_per_interval(clock: FakeClock) -> None:
    provider = Provider(jwks(es256()))
    keys = remote_keys(provider, clock)
    assert await keys.find("ES256", "es")
    clock.advance(31)

    results = await asyncio.gather(*[keys.find("ES256", f"unknown {n}") for n in range(200)])
    assert results == [None] * 200
    assert provider.fetches == 2

    for n in range(29):
        clock.advance(1)
        await keys.find("ES256", f"new {n}")
    assert provider.fetches == 2
    clock.advance(1)
    await keys.find("ES256", "yet another")
    assert provider.fetches == 3


async def test_concurrent_first_tokens_share_one_fetch(clock: FakeClock) -> None:
    provider = Provider(jwks(es256()))
    provider.gate.clear()
    keys = remote_keys(provider, clock)
    tasks = [asyncio.create_task(keys.find("ES256", "es")) for _ in range(20)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.sleep(0)

    provider.gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert isinstance(results[0], asyncio.CancelledError)
    assert all(results[1:])
    assert not any(isinstance(result, BaseException) for result in results[1:])
    assert provider.fetches == 1


async def test_new_key_is_found_at_once_and_increases_the_generation(clock: FakeClock) -> None:
    provider = Provider(jwks(es256("old")))
    keys = remote_keys(provider, clock)
    assert await keys.find("ES256", "old")
    generation = keys.generation
    clock.advance(60)

    provider.body = jwks(es256("old"), es256("new"))
    assert await keys.find("ES256", "new")
    assert keys.generation == generation + 1

    clock.advance(600)
    assert await keys.find("ES256", "new")
    assert keys.generation == generation + 1


async def test_withdrawn_key_is_gone_after_the_next_fetch(clock: FakeClock) -> None:
    provider = Provider(jwks(es256("old"), es256("new")))
    keys = remote_keys(provider, clock)
    assert await keys.find("ES256", "old")
    provider.body = jwks(es256("new"))
    clock.advance(600)

    assert await keys.find("ES256", "old") is None
    assert await keys.find("ES256", "new")


async def test_unknown_kid_causes_no_fetch_for_two_intervals(clock: FakeClock) -> None:
    provider = Provider(jwks(es256()))
    keys = remote_keys(provider, clock)
    await keys.find("ES256", "es")
    clock.advance(30)
    await keys.find("ES256", "withdrawn")
    assert provider.fetches == 2

    clock.advance(59)
    assert await keys.find("ES256", "withdrawn") is None
    assert provider.fetches == 2
    clock.advance(1)
    provider.body = jwks(es256(), es256("withdrawn"))
    assert await keys.find("ES256", "withdrawn")
    assert provider.fetches == 3


async def test_kid_seen_before_the_interval_ends_is_fetched_when_it_ends(clock: FakeClock) -> None:
    provider = Provider(jwks(es256()))
    keys = remote_keys(provider, clock)
    await keys.find("ES256", "es")
    provider.body = jwks(es256(), es256("new"))
    clock.advance(29)
    assert await keys.find("ES256", "new") is None

    clock.advance(1)
    assert await keys.find("ES256", "new")


async def test_token_without_kid_never_causes_a_second_fetch(clock: FakeClock) -> None:
    provider = Provider(jwks(es256("a"), es256("b")))
    keys = remote_keys(provider, clock)
    await keys.find("ES256", None)
    clock.advance(60)

    assert await keys.find("ES256", None) is None
    assert provider.fetches == 1


async def test_last_set_is_used_for_a_limited_time_while_the_provider_is_down(clock: FakeClock) -> None:
    provider = Provider(jwks(es256()))
    keys = remote_keys(provider, clock)
    await keys.find("ES256", "es")
    provider.is_down = True

    clock.advance(600 + 86_399)
    assert await keys.find("ES256", "es")
    clock.advance(1)
    with pytest.raises(Unavailable, match="cannot be fetched"):
        await keys.find("ES256", "es")

    provider.is_down = False
    clock.advance(30)
    assert await keys.find("ES256", "es")


async def test_unavailable_provider_is_tried_once_per_interval(clock: FakeClock) -> None:
    provider = Provider(b"")
    provider.is_down = True
    keys = remote_keys(provider, clock)
    waits = []
    for _ in range(5):
        with pytest.raises(Unavailable) as raised:
            await keys.find("ES256", "es")
        waits.append(raised.value.retry_after_s)
        clock.advance(1)

    assert provider.fetches == 1
    assert waits[-1] == pytest.approx(26)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"keys": {}}', b'{"keys": null}', b"\xff", b"1"])
async def test_invalid_response_leaves_the_last_set_in_use(clock: FakeClock, body: bytes) -> None:
    provider = Provider(jwks(es256()))
    keys = remote_keys(provider, clock)
    await keys.find("ES256", "es")
    provider.body = body
    clock.advance(600)

    assert await keys.find("ES256", "es")
    assert provider.fetches == 2


async def test_empty_set_withdraws_all_keys(clock: FakeClock) -> None:
    provider = Provider(jwks(es256()))
    keys = remote_keys(provider, clock)
    await keys.find("ES256", "es")
    provider.body = b'{"keys": []}'
    clock.advance(600)

    assert await keys.find("ES256", "es") is None


class _Handler(http.server.BaseHTTPRequestHandler):
    """Responds like an identity provider, a proxy or an attacker; `paths` is shared by all requests."""

    paths: ClassVar[list[str]] = []
    release: ClassVar[threading.Event] = threading.Event()

    def do_GET(self) -> None:
        self.paths.append(self.path)
        match self.path:
            case "/keys":
                self._respond(200, jwks(es256()))
            case "/moved":
                self._respond(302, b"", location="/keys")
            case "/huge":
                self._respond(200, b" " * 100_000)
            case "/silent":
                self.release.wait(10)
            case _:
                self._respond(500, b"{}")

    def _respond(self, status: int, body: bytes, location: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Disables the access log."""


@pytest.fixture
def provider_url() -> Iterator[str]:
    _Handler.paths.clear()
    _Handler.release.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            _Handler.release.set()
            server.shutdown()
            thread.join()


async def test_keys_are_fetched_over_http(provider_url: str, clock: FakeClock) -> None:
    settings = make_settings(jwt_jwks_url=f"{provider_url}/keys", jwt_issuer=ISSUER)
    keys = RemoteKeys(settings, partial(fetch_url, timeout_s=5, max_bytes=50_000), clock)

    assert await keys.find("ES256", "es")
    assert _Handler.paths == ["/keys"]


@pytest.mark.parametrize(
    ("path", "reason"), [("/moved", "302"), ("/huge", "larger than 50000 bytes"), ("/missing", "500")]
)
async def test_redirects_large_responses_and_errors_raise_unavailable(
    provider_url: str, path: str, reason: str
) -> None:
    with pytest.raises(Unavailable, match=reason):
        await fetch_url(provider_url + path, 5, 50_000)
    assert _Handler.paths == [path]


async def test_silent_provider_times_out(provider_url: str) -> None:
    with pytest.raises(Unavailable, match=r"took longer than 0\.1 s|sent nothing for 0\.1 s"):
        await fetch_url(f"{provider_url}/silent", 0.1, 50_000)


@each_case("url", ["http://127.0.0.1:1/keys", "not a url"])
async def test_unreachable_address_raises_unavailable(url: str) -> None:
    with pytest.raises(Unavailable, match="fetch failed"):
        await fetch_url(url, 5, 50_000)


async def test_file_urls_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(jwks(es256()))

    with pytest.raises(Unavailable, match=r"cannot be reached .*UnsupportedProtocol"):
        await fetch_url(f"file://{tmp_path}/keys", 5, 50_000)


@pytest.mark.parametrize("body", [b'{"keys":' + b"[" * 100_000, b'{"keys":' + b'{"a":' * 100_000, b'{"\xff": 1}'])
async def test_deeply_nested_or_undecodable_set_is_refused(clock: FakeClock, body: bytes) -> None:
    keys = remote_keys(Provider(body), clock)
    with pytest.raises(Unavailable, match="signing keys cannot be fetched"):
        await keys.find("ES256", "es")
