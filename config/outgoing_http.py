"""Outgoing HTTP requests: what this server fetches from an identity provider, the chat upstream and OAuth clients.

They use the proxies that the environment names (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`), verify
certificates against the system's authorities, follow no redirects, and every wait is bounded. Each request has its own
connection. httpx2 is imported on a thread with the first request, because that takes 0.2 s and most servers need none.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import lru_cache

from msgspec import Struct

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
