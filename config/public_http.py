"""Fetches documents from the public Internet whose addresses strangers choose.

Such an address must not reach the network behind this server (server-side request forgery). The host name is resolved
once, every address must be public, and the connection goes to one of these addresses, so that a name that resolves to
something else a moment later has no effect. Redirects are not followed, and size and time are limited.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from urllib.parse import SplitResult, urlsplit

from config.outgoing_http import OutgoingRequestError, OutgoingRequestTimeout, open_response

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

_HTTPS_PORT = 443
# Addresses that contain an IPv4 address, to which a gateway may translate them: NAT64, 6to4, Teredo, IPv4-compatible.
_TRANSLATED = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")))
# Relays for 6to4 (RFC 7526), no longer in use.
_RELAY = ipaddress.IPv4Network("192.88.99.0/24")


class AddressRefused(OutgoingRequestError):
    """The URL does not lead to a public https server."""


class PublicFetch:
    """Fetches https URLs. Those of `allowed_hosts` may have a private address and any port."""

    def __init__(
        self, timeout_s: float, max_bytes: int, allowed_hosts: Collection[str] = (), resolve: Resolver | None = None
    ) -> None:
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._allowed_hosts = frozenset(host.lower() for host in allowed_hosts)
        self._resolve = resolve or resolve_host

    async def get_json(self, url: str) -> bytes:
        """Returns the body of a JSON document. Raises `OutgoingRequestError`."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._get(url)
        except TimeoutError as error:
            raise OutgoingRequestTimeout(f"took longer than {self._timeout_s:g} s") from error

    async def _get(self, url: str) -> bytes:
        address = await self._address_of(_split(url))
        headers = {"Accept": "application/json"}
        async with open_response("GET", url, headers=headers, timeout_s=self._timeout_s, address=address) as response:
            if response.status != 200:
                raise OutgoingRequestError(f"responded with status {response.status}")
            media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if media_type != "application/json" and not media_type.endswith("+json"):
                raise OutgoingRequestError("did not respond with JSON")
            return await response.read(self._max_bytes)

    async def _address_of(self, parts: SplitResult) -> str:
        host, port = (parts.hostname or "").lower(), parts.port or _HTTPS_PORT
        is_allowed = host in self._allowed_hosts or f"{host}:{port}" in self._allowed_hosts
        if port != _HTTPS_PORT and not is_allowed:
            raise AddressRefused("uses another port than 443")
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            raise OutgoingRequestError("cannot be resolved") from error
        if not addresses:
            raise OutgoingRequestError("cannot be resolved")
        if not is_allowed and not all(map(is_public_address, addresses)):
            raise AddressRefused("does not have a public address")
        return addresses[0]


def is_public_address(text: str) -> bool:
    """Whether an IP address belongs to the public Internet: not private, loopback, link-local, shared (RFC 6598),
    multicast, reserved, or an IPv6 spelling of such an address."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public_address(str(address.ipv4_mapped))
        if address.is_site_local or any(address in network for network in _TRANSLATED):
            return False
    elif address in _RELAY:
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


async def resolve_host(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise AddressRefused("is not a URL") from error
    if parts.scheme != "https" or not parts.hostname or "@" in parts.netloc:
        raise AddressRefused("is not an https URL")
    return parts
