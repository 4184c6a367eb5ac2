"""Fetches documents from the public Internet whose addresses strangers choose.

Such an address must not reach the network behind this server (server-side request forgery). The host name is resolved
once, every address must be public, and the connection goes to one of these addresses, so that a name that resolves to
something else a moment later has no effect. Redirects are not followed, and size and time are limited.
"""

import asyncio
import ipaddress
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import lru_cache
from urllib.parse import SplitResult, urljoin, urlsplit

from msgspec import Struct

# -- outgoing http -----------------------------------------------------------------------------------------------------
# Outgoing HTTP requests: what this server fetches from an identity provider, the chat upstream and OAuth clients.
#
# They use the proxies that the environment names (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`), verify
# certificates against the system's authorities, follow no redirects, and every wait is bounded. Each request has its
# own connection. httpx2 is imported on a thread with the first request, because that takes 0.2 s and most servers need
# none.

_PROXY_AUTHENTICATION_REQUIRED = 407


class OutgoingRequestError(Exception):
    """A request failed. `reason` is what the other side did; `detail` is for the operator only, because it can describe
    the network behind this server."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason} ({detail})" if detail else reason)
        self.reason = reason
        self.detail = detail


class OutgoingRequestTimeout(OutgoingRequestError):
    """The other side sent nothing for too long."""


class IncomingResponse(Struct, frozen=True):
    """Status and headers, with lower-case header names, and the body, which can be read once."""

    status: int
    headers: Mapping[str, str]
    body: AsyncIterator[bytes]

    async def read(self, max_bytes: int) -> bytes:
        parts, size = [], 0
        async for part in self.body:
            size += len(part)
            if size > max_bytes:
                raise OutgoingRequestError(f"sent a response larger than {max_bytes} bytes")
            parts.append(part)
        return b"".join(parts)


@asynccontextmanager
async def open_response(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes = b"",
    timeout_s: float,
    address: str | None = None,
) -> AsyncIterator[IncomingResponse]:
    """Sends a request and yields its response; the connection is open as long as the block. Raises
    `OutgoingRequestError`, also in the block if the body cannot be read to its end.

    With `address`, the connection goes to that IP address, whatever the host name resolves to by now. The certificate
    must still be that of the host name.
    """
    tls_context = await asyncio.to_thread(_tls_context, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    import httpx2  # noqa: PLC0415 - see above

    own_headers = {
        # Parts of a response are used as they arrive.
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    async with AsyncExitStack() as stack:
        try:
            target, extensions = httpx2.URL(url), {}
            if address is not None:
                own_headers["Host"] = target.netloc.decode("ascii")
                extensions = {"sni_hostname": target.host}
                target = target.copy_with(host=address)
            client = await stack.enter_async_context(httpx2.AsyncClient(verify=tls_context, timeout=timeout_s))
            all_headers = own_headers | dict(headers)
            request = client.stream(method, target, headers=all_headers, content=body or None, extensions=extensions)
            response = await stack.enter_async_context(request)
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise _request_error(error, timeout_s) from error
        if response.status_code == _PROXY_AUTHENTICATION_REQUIRED:
            raise OutgoingRequestError("cannot be reached", "the proxy requires authentication")
        names = {name.lower(): value for name, value in response.headers.items()}
        yield IncomingResponse(response.status_code, names, _body(response.aiter_raw(), timeout_s))


def uses_proxy(scheme: str, host: str) -> bool:
    """Returns whether the environment names a proxy for a host."""
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - loads ssl and http.client

    proxies = getproxies()
    return bool(proxies.get(scheme) or proxies.get("all")) and not proxy_bypass(host)


async def _body(chunks: AsyncIterator[bytes], timeout_s: float) -> AsyncIterator[bytes]:
    import httpx2  # noqa: PLC0415 - see above

    try:
        async for chunk in chunks:
            yield chunk
    except httpx2.HTTPError as error:
        raise _request_error(error, timeout_s) from error


def _request_error(error: Exception, timeout_s: float) -> OutgoingRequestError:
    import httpx2  # noqa: PLC0415 - see above

    detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    match error:
        case httpx2.TimeoutException():
            return OutgoingRequestTimeout(f"sent nothing for {timeout_s:g} s", detail)
        case httpx2.RemoteProtocolError():
            return OutgoingRequestError("sent an incomplete or invalid HTTP response", detail)
        case httpx2.ReadError() | httpx2.WriteError() | httpx2.CloseError():
            return OutgoingRequestError("closed the connection", detail)
        case _:
            return OutgoingRequestError("cannot be reached", detail)


@lru_cache(maxsize=2)
def _tls_context(_authorities_file: str | None, _authorities_directory: str | None) -> ssl.SSLContext:
    """Created once for each choice of authorities, because loading them is slow. httpx2 reads the same variables."""
    import httpx2  # noqa: PLC0415 - see above

    return httpx2.create_ssl_context()


Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

_HTTPS_PORT = 443
_HTTP_PORT = 80
_REDIRECTS = (301, 302, 303, 307, 308)
_REDIRECTS_MAX = 5
_NOT_MODIFIED = 304
# Addresses that contain an IPv4 address, to which a gateway may translate them: NAT64, 6to4, Teredo, IPv4-compatible.
_TRANSLATED = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")))
# Relays for 6to4 (RFC 7526), no longer in use.
_RELAY = ipaddress.IPv4Network("192.88.99.0/24")


class AddressRefused(OutgoingRequestError):
    """The URL does not lead to a public https server."""


class FetchedDocument(Struct, frozen=True, kw_only=True):
    """A document, and the validators with which it is asked for again (RFC 9110, section 13.1)."""

    body: bytes
    media_type: str
    etag: str
    last_modified: str


class PublicFetch:
    """Fetches https URLs, and documents also from http URLs. Those of `allowed_hosts` may have a private address and
    any port."""

    def __init__(
        self, timeout_s: float, max_bytes: int, allowed_hosts: Collection[str] = (), resolve: Resolver | None = None
    ) -> None:
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._allowed_hosts = frozenset(host.lower() for host in allowed_hosts)
        self._resolve = resolve or resolve_host

    async def get_json(self, url: str) -> bytes:
        """Returns the body of a JSON document. Raises `OutgoingRequestError`."""
        headers, timeout_s = {"Accept": "application/json"}, self._timeout_s
        try:
            # Of the whole exchange; that of `open_response` is for each part of it.
            async with asyncio.timeout(timeout_s):
                address = await self.check(url)
                async with open_response("GET", url, headers=headers, timeout_s=timeout_s, address=address) as response:
                    if response.status != 200:
                        raise OutgoingRequestError(f"responded with status {response.status}")
                    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                    if media_type != "application/json" and not media_type.endswith("+json"):
                        raise OutgoingRequestError("did not respond with JSON")
                    return await response.read(self._max_bytes)
        except TimeoutError as error:
            raise OutgoingRequestTimeout(f"took longer than {timeout_s:g} s") from error

    @asynccontextmanager
    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AsyncIterator[IncomingResponse]:
        """Sends a request to an https URL and yields its response, as `open_response` does. The time limit is for each
        part of it, and the size is not limited."""
        address = await self.check(url)
        async with open_response(
            "POST", url, headers=headers, body=body, timeout_s=self._timeout_s, address=address
        ) as response:
            yield response

    async def check(self, url: str) -> str:
        """Returns the address of an https URL. Raises `AddressRefused` if it is not public."""
        return await self._address_of(_split(url, ("https",)))

    async def get_document(self, url: str, etag: str = "", last_modified: str = "") -> FetchedDocument | None:
        """Returns a document, or None if it has not changed since it had these validators. Follows redirects, each of
        which must lead to a public address. Raises `OutgoingRequestError`."""
        validators = {"If-None-Match": etag, "If-Modified-Since": last_modified}
        headers = {"Accept": "*/*"} | {name: value for name, value in validators.items() if value}
        try:
            async with asyncio.timeout(self._timeout_s):
                for _ in range(_REDIRECTS_MAX + 1):
                    result = await self._get_document(url, headers)
                    if not isinstance(result, str):
                        return result
                    url = result
        except TimeoutError as error:
            raise OutgoingRequestTimeout(f"took longer than {self._timeout_s:g} s") from error
        raise OutgoingRequestError(f"redirected more than {_REDIRECTS_MAX} times")

    async def _get_document(self, url: str, headers: dict[str, str]) -> FetchedDocument | str | None:
        """Returns the document, the address that it redirects to, or None if it has not changed."""
        address = await self._address_of(_split(url, ("https", "http")))
        async with open_response("GET", url, headers=headers, timeout_s=self._timeout_s, address=address) as response:
            if response.status == _NOT_MODIFIED:
                return None
            if response.status in _REDIRECTS and "location" in response.headers:
                return urljoin(url, response.headers["location"])
            if response.status != 200:
                raise OutgoingRequestError(f"responded with status {response.status}")
            return FetchedDocument(
                body=await response.read(self._max_bytes),
                media_type=response.headers.get("content-type", "").partition(";")[0].strip().lower(),
                etag=response.headers.get("etag", ""),
                last_modified=response.headers.get("last-modified", ""),
            )

    async def _address_of(self, parts: SplitResult) -> str:
        usual_port = _HTTP_PORT if parts.scheme == "http" else _HTTPS_PORT
        host, port = (parts.hostname or "").lower(), parts.port or usual_port
        is_allowed = host in self._allowed_hosts or f"{host}:{port}" in self._allowed_hosts
        if port != usual_port and not is_allowed:
            raise AddressRefused(f"uses another port than {usual_port}")
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


def origin_of(url: str) -> str:
    """Returns scheme, host and port of an http or https URL. Raises `AddressRefused` for another one."""
    parts = _split(url, ("https", "http"))
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _split(url: str, schemes: Sequence[str]) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise AddressRefused("is not a URL") from error
    if parts.scheme not in schemes or not parts.hostname or "@" in parts.netloc:
        raise AddressRefused(f"is not an {schemes[0]} URL")
    return parts
