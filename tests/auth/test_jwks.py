"""Keys behind a URL: how seldom it is asked, and what happens when it does not answer."""

import asyncio
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from auth.jwks import RemoteKeys, UrlFetch
from config.errors import Unavailable
from tests.auth.issuers import eddsa, es256, jwks
from tests.auth.scene import ISSUER, FakeClock, make_settings

URL = "https://id.example.com/keys"


class Provider:
    """An identity provider whose answer and availability the test decides."""

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


def remote(provider: Provider, clock: FakeClock, **changes: Any) -> RemoteKeys:
    settings = make_settings(jwt_jwks_url=URL, jwt_issuer=ISSUER, **changes)
    return RemoteKeys(settings, provider, clock)


async def test_the_set_is_fetched_at_the_first_token_and_then_kept(clock: FakeClock) -> None:
    provider = Provider(jwks(es256(), eddsa()))
    keys = remote(provider, clock)
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


async def test_a_storm_of_unknown_kids_causes_one_fetch_per_interval(clock: FakeClock) -> None:
    provider = Provider(jwks(es256()))
    keys = remote(provider, clock)
    assert await keys.find("ES256", "es")
    clock.advance(31)

    found = await asyncio.gather(*[keys.find("ES256", f"unknown {n}") for n in range(200)])
    assert found == [None] * 200
    assert provider.fetches == 2

    for n in range(29):
        clock.advance(1)
        await keys.find("ES256", f"new {n}")
    assert provider.fetches == 2
    clock.advance(1)
    await keys.find("ES256", "yet another")
    assert provider.fetches == 3


async def test_first_tokens_that_arrive_together_share_one_fetch(clock: FakeClock) -> None:
    provider = Provider(jwks(es256()))
    provider.gate.clear()
    keys = remote(provider, clock)
    waiting = [asyncio.create_task(keys.find("ES256", "es")) for _ in range(20)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)

    provider.gate.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)

    assert isinstance(found[0], asyncio.CancelledError)
    assert all(found[1:])
    assert not any(isinstance(answer, BaseException) for answer in found[1:])
    assert provider.fetches == 1


async def test_a_new_key_is_found_at_once_and_raises_the_generation(clock: FakeClock) -> None:
    provider = Provider(jwks(es256("old")))
    keys = remote(provider, clock)
    assert await keys.find("ES256", "old")
    generation = keys.generation
    clock.advance(60)

    provider.body = jwks(es256("old"), es256("new"))
    assert await keys.find("ES256", "new")
    assert keys.generation == generation + 1

    clock.advance(600)
    assert await keys.find("ES256", "new")
    assert keys.generation == generation + 1


async def test_a_withdrawn_key_is_gone_after_the_next_fetch(clock: FakeClock) -> None:
    provider = Provider(jwks(es256("old"), es256("new")))
    keys = remote(provider, clock)
    assert await keys.find("ES256", "old")
    provider.body = jwks(es256("new"))
    clock.advance(600)

    assert await keys.find("ES256", "old") is None
    assert await keys.find("ES256", "new")


async def test_an_unknown_kid_is_not_asked_for_again_until_two_intervals_later(clock: FakeClock) -> None:
    provider = Provider(jwks(es256()))
    keys = remote(provider, clock)
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


async def test_a_kid_met_while_fetching_is_not_allowed_is_asked_for_as_soon_as_it_is(clock: FakeClock) -> None:
    provider = Provider(jwks(es256()))
    keys = remote(provider, clock)
    await keys.find("ES256", "es")
    provider.body = jwks(es256(), es256("new"))
    clock.advance(29)
    assert await keys.find("ES256", "new") is None

    clock.advance(1)
    assert await keys.find("ES256", "new")


async def test_a_token_without_kid_never_causes_a_second_fetch(clock: FakeClock) -> None:
    provider = Provider(jwks(es256("a"), es256("b")))
    keys = remote(provider, clock)
    await keys.find("ES256", None)
    clock.advance(60)

    assert await keys.find("ES256", None) is None
    assert provider.fetches == 1


async def test_while_the_provider_is_down_the_last_set_is_used_for_a_limited_time(clock: FakeClock) -> None:
    provider = Provider(jwks(es256()))
    keys = remote(provider, clock, jwks_stale_max_s=3600)
    await keys.find("ES256", "es")
    provider.is_down = True

    clock.advance(600 + 3599)
    assert await keys.find("ES256", "es")
    clock.advance(1)
    with pytest.raises(Unavailable, match="cannot be fetched now"):
        await keys.find("ES256", "es")

    provider.is_down = False
    clock.advance(30)
    assert await keys.find("ES256", "es")


async def test_a_provider_that_is_down_is_asked_once_per_interval(clock: FakeClock) -> None:
    provider = Provider(b"")
    provider.is_down = True
    keys = remote(provider, clock)
    waits = []
    for _ in range(5):
        with pytest.raises(Unavailable) as refused:
            await keys.find("ES256", "es")
        waits.append(refused.value.retry_after_s)
        clock.advance(1)

    assert provider.fetches == 1
    assert waits[-1] == pytest.approx(26)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"keys": {}}', b'{"keys": null}', b"\xff", b"1"])
async def test_an_answer_that_is_no_set_leaves_the_last_one_in_use(clock: FakeClock, body: bytes) -> None:
    provider = Provider(jwks(es256()))
    keys = remote(provider, clock)
    await keys.find("ES256", "es")
    provider.body = body
    clock.advance(600)

    assert await keys.find("ES256", "es")
    assert provider.fetches == 2


async def test_an_empty_set_withdraws_all_keys(clock: FakeClock) -> None:
    provider = Provider(jwks(es256()))
    keys = remote(provider, clock)
    await keys.find("ES256", "es")
    provider.body = b'{"keys": []}'
    clock.advance(600)

    assert await keys.find("ES256", "es") is None


class _Handler(http.server.BaseHTTPRequestHandler):
    """What an identity provider, a proxy or a stranger may answer; `asked` is shared by all requests."""

    asked: ClassVar[list[str]] = []
    release: ClassVar[threading.Event] = threading.Event()

    def do_GET(self) -> None:
        self.asked.append(self.path)
        match self.path:
            case "/keys":
                self._answer(200, jwks(es256()))
            case "/moved":
                self._answer(302, b"", location="/keys")
            case "/huge":
                self._answer(200, b" " * 100_000)
            case "/silent":
                self.release.wait(10)
            case _:
                self._answer(500, b"{}")

    def _answer(self, status: int, body: bytes, location: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Quiet."""


@pytest.fixture
def provider_url() -> Iterator[str]:
    _Handler.asked.clear()
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


async def test_keys_are_fetched_over_real_http(provider_url: str, clock: FakeClock) -> None:
    settings = make_settings(jwt_jwks_url=f"{provider_url}/keys", jwt_issuer=ISSUER)
    keys = RemoteKeys(settings, UrlFetch(5, 50_000), clock)

    assert await keys.find("ES256", "es")
    assert _Handler.asked == ["/keys"]


@pytest.mark.parametrize(
    ("path", "reason"), [("/moved", "302"), ("/huge", "larger than 50000 bytes"), ("/missing", "500")]
)
async def test_other_answers_are_refused_and_redirects_not_followed(provider_url: str, path: str, reason: str) -> None:
    with pytest.raises(Unavailable, match=reason):
        await UrlFetch(5, 50_000)(provider_url + path)
    assert _Handler.asked == [path]


async def test_a_provider_that_says_nothing_is_given_up(provider_url: str) -> None:
    with pytest.raises(Unavailable, match="TimeoutError"):
        await UrlFetch(0.1, 50_000)(f"{provider_url}/silent")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/keys", "not a url"])
async def test_an_address_that_cannot_be_reached_is_unavailable(url: str) -> None:
    with pytest.raises(Unavailable, match="fetching it failed"):
        await UrlFetch(5, 50_000)(url)


async def test_files_are_not_read_by_url(tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(jwks(es256()))

    with pytest.raises(Unavailable, match="unknown url type: file"):
        await UrlFetch(5, 50_000)(f"file://{tmp_path}/keys")
