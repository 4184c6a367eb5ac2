"""Documents at addresses that strangers choose: nothing behind this server can be reached, and every wait ends."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from config.public_http import (
    AddressRefused,
    OutgoingRequestError,
    OutgoingRequestTimeout,
    PublicFetch,
    is_public_address,
)
from tests.cases import each_case
from tests.server.oauth.document_host import DocumentHost, open_document_host

NAME = "documents.example.com"
# Where a test is not about the time limit, a busy machine must not reach it.
PATIENCE_S = 60

PRIVATE_ADDRESSES = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.254", "127.0.0.1"),
    *("127.1.2.3", "169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1"),
    *("192.88.99.1", "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1"),
    *("239.255.255.250", "240.0.0.1", "255.255.255.255", "::", "::1", "::7f00:1", "::ffff:127.0.0.1"),
    *("::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::1"),
    *("100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:a00:1::", "fc00::1", "fd12:3456::1"),
    *("fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "localhost", "not-an-address", "1.2.3", "0x7f.0.0.1"),
    *("2130706433"),
]
PUBLIC_ADDRESSES = ["1.1.1.1", "8.8.8.8", "160.79.104.10", "2606:4700::1111", "2001:4860:4860::8888", "::ffff:8.8.8.8"]


class ControlledResolver:
    """Answers the n-th question with the n-th list of addresses, and the last one from then on."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.questions: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.questions.append((host, port))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DocumentHost]:
    async with open_document_host(tmp_path) as documents:
        monkeypatch.setenv("SSL_CERT_FILE", str(documents.authority))
        documents.serve("/client.json", {"client_name": "App"}, NAME)
        yield documents


@each_case("address", PRIVATE_ADDRESSES)
def test_addresses_of_other_networks_are_not_public(address: str) -> None:
    assert not is_public_address(address)


@each_case("address", PUBLIC_ADDRESSES)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public_address(address)


@each_case("address", PRIVATE_ADDRESSES)
async def test_name_with_a_private_address_is_refused(address: str) -> None:
    fetch = PublicFetch(PATIENCE_S, 1000, resolve=ControlledResolver([address]))
    with pytest.raises(AddressRefused, match="does not have a public address"):
        await fetch.get_json(f"https://{NAME}/client.json")


@each_case("answer", [["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"], ["2606:4700::1111", "::1"]])
async def test_one_private_address_among_several_is_refused(answer: list[str]) -> None:
    with pytest.raises(AddressRefused):
        await PublicFetch(PATIENCE_S, 1000, resolve=ControlledResolver(answer)).get_json(f"https://{NAME}/client.json")


@each_case(
    "url",
    [
        "http://documents.example.com/client.json",
        "ftp://documents.example.com/client.json",
        "file:///etc/passwd",
        "https:///client.json",
        "https://user@documents.example.com/client.json",
        "https://user:password@documents.example.com/client.json",
        "https://documents.example.com:8443/client.json",
        "https://documents.example.com:22/client.json",
        "https://documents.example.com:99999/client.json",
        "https://[::1/client.json",
        "//documents.example.com/client.json",
        "documents.example.com",
        "",
    ],
)
async def test_url_that_is_not_https_on_its_port_is_refused(url: str) -> None:
    resolver = ControlledResolver(["8.8.8.8"])
    with pytest.raises(AddressRefused):
        await PublicFetch(PATIENCE_S, 1000, resolve=resolver).get_json(url)
    assert resolver.questions == []


async def test_connection_goes_to_the_address_that_was_checked(host: DocumentHost) -> None:
    """The name is resolved once: a second answer, which an attacker could change (DNS rebinding), is not used."""
    resolver = ControlledResolver(["127.0.0.1"], ["8.8.8.8"])
    fetch = PublicFetch(PATIENCE_S, 1000, [f"{NAME}:{host.port}"], resolver)
    body = await fetch.get_json(host.url("/client.json", NAME))

    assert b'"client_name":"App"' in body
    assert resolver.questions == [(NAME, host.port)]


async def test_rebinding_name_never_reaches_the_private_address(host: DocumentHost) -> None:
    """The first answer is private: it is refused although the second would be public, and nothing is sent."""
    resolver = ControlledResolver(["127.0.0.1"], ["8.8.8.8"])
    with pytest.raises(AddressRefused):
        await PublicFetch(PATIENCE_S, 1000, [f"other:{host.port}"], resolver).get_json(f"https://{NAME}/client.json")
    assert host.requests == []


async def test_certificate_has_to_be_that_of_the_name(host: DocumentHost) -> None:
    fetch = PublicFetch(PATIENCE_S, 1000, ["other.example.com"], ControlledResolver(["127.0.0.1"]))
    with pytest.raises(OutgoingRequestError, match="cannot be reached"):
        await fetch.get_json(host.url("/client.json", "other.example.com"))
    assert host.requests == []


async def _never(_writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def _slow(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 600\r\n\r\n")
    for _ in range(600):
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)


async def _endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    while not writer.is_closing():
        writer.write(b" " * 65_536)
        await writer.drain()


async def test_slow_host_is_given_up(host: DocumentHost) -> None:
    for path, respond in (("/never", _never), ("/slow", _slow)):
        host.serve_with(path, respond)
        fetch = PublicFetch(0.3, 1000, ["127.0.0.1"])
        with pytest.raises(OutgoingRequestTimeout):
            await fetch.get_json(host.url(path))


async def test_endless_and_huge_documents_are_given_up(host: DocumentHost) -> None:
    host.serve_with("/endless", _endless)
    host.serve("/huge", {"client_name": "x" * 2000})
    for path in ("/endless", "/huge"):
        with pytest.raises(OutgoingRequestError, match="larger than 1000 bytes"):
            await PublicFetch(PATIENCE_S, 1000, ["127.0.0.1"]).get_json(host.url(path))


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
async def test_redirects_are_not_followed(status: str, host: DocumentHost) -> None:
    host.serve_bytes("/moved", b"", status, Location="/client.json", **{"Content-Type": "application/json"})
    with pytest.raises(OutgoingRequestError, match=f"responded with status {status[:3]}"):
        await PublicFetch(PATIENCE_S, 1000, ["127.0.0.1"]).get_json(host.url("/moved"))
    assert host.requests == ["/moved"]


async def test_other_statuses_and_types_are_refused(host: DocumentHost) -> None:
    host.serve_bytes("/missing", b"{}", "404 Not Found", **{"Content-Type": "application/json"})
    host.serve_bytes("/page", b"<html>", **{"Content-Type": "text/html"})
    host.serve_bytes("/untyped", b"{}")
    for path in ("/missing", "/page", "/untyped"):
        with pytest.raises(OutgoingRequestError):
            await PublicFetch(PATIENCE_S, 1000, ["127.0.0.1"]).get_json(host.url(path))
