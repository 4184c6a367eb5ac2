"""The requests of the connection doctor, and the sentences for responses that no client can use."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from config.public_http import OutgoingRequestError, open_response

# Another program may answer at the address, with a response of any size.
_BODY_MAX_BYTES = 4 * 1024 * 1024
_QUOTED_CHARS = 120


class HopFailed(Exception):
    """A hop of the connection failed. The message says why, and what to change."""


class HopResponse(Struct, frozen=True):
    """A response that was read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """Returns the JSON of the body, or of the last event of a stream; None if there is none."""
        text = self.text
        # A server may answer a POST with a stream, whose last event is the response (MCP, Streamable HTTP).
        if self.media_type == "text/event-stream":
            events = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
            text = events[-1] if events else ""
        try:
            return json.loads(text)
        except ValueError:
            return None

    def json_object(self, what: str) -> dict[str, Any]:
        value = self.json()
        if not isinstance(value, dict):
            raise HopFailed(f"{what} is not a JSON object, but {self.describe()}")
        return value

    def describe(self) -> str:
        kind = self.media_type or "a response without a type"
        return f"{kind} with status {self.status}: {self.quote()}"

    def quote(self) -> str:
        """Returns the beginning of the body on one line."""
        # It is printed on a terminal, and any program may have sent it.
        text = " ".join("".join(c if c.isprintable() else " " for c in self.text).split())
        return text[:_QUOTED_CHARS] + ("…" if len(text) > _QUOTED_CHARS else "") or "no text"

    def error_message(self) -> str:
        """Returns the message of an error response of this server, in any of its formats."""
        value = self.json()
        error = value.get("error") if isinstance(value, dict) else None
        if isinstance(error, dict):
            return str(error.get("message", ""))
        if isinstance(error, str):
            return f"{error} {value.get('error_description', '')}".strip()
        return str(value.get("detail") or value.get("message") or "") if isinstance(value, dict) else ""


class Requests:
    """Sends requests as a client would: without redirects, and with the Origin of a client that runs in a browser."""

    def __init__(self, timeout_s: float, origin: str = "") -> None:
        self._timeout_s = timeout_s
        self._headers = {"User-Agent": "florilegium-doctor", **({"Origin": origin} if origin else {})}

    async def send(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> HopResponse:
        try:
            async with open_response(
                method, url, headers={**self._headers, **(headers or {})}, body=body, timeout_s=self._timeout_s
            ) as response:
                return HopResponse(response.status, response.headers, await response.read(_BODY_MAX_BYTES))
        except OutgoingRequestError as error:
            raise HopFailed(_connection_problem(url, error)) from error

    async def get(self, url: str) -> HopResponse:
        return await self.send("GET", url, {"Accept": "application/json"})

    async def post_json(self, url: str, value: Any, headers: Mapping[str, str] | None = None) -> HopResponse:
        own = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        return await self.send("POST", url, {**own, **(headers or {})}, json.dumps(value).encode())


def _connection_problem(url: str, error: OutgoingRequestError) -> str:
    # The error has only the text of its cause, from OpenSSL or from the resolver of the system.
    host, detail = urlsplit(url).netloc, error.detail
    if "CERTIFICATE_VERIFY_FAILED" in detail:
        reason = detail.partition("certificate verify failed:")[2].partition(" (")[0].strip() or "not trusted"
        return f"the TLS certificate of {host} is not accepted ({reason}); install one that all clients trust"
    if "WRONG_VERSION_NUMBER" in detail or "record layer" in detail:
        return f"{host} does not speak TLS at this port; use http://, or terminate TLS in a reverse proxy"
    if "Name or service" in detail or "getaddrinfo" in detail or "nodename" in detail:
        return f"the name {urlsplit(url).hostname} cannot be resolved; check the address and its DNS record"
    if "refused" in detail.lower() or "All connection attempts failed" in detail:
        return f"nothing listens at {host}; start the server, and check host and port"
    return f"{host} {error}"


def response_problem(response: HopResponse, url: str, origin: str) -> str:
    """Says why an MCP endpoint gave a response that is neither a result nor a challenge, and what to change."""
    status, host = response.status, urlsplit(url).netloc
    message = response.error_message()
    if status in (301, 302, 303, 307, 308):
        target = response.headers.get("location", "another address")
        return f"redirects to {target}; give clients that address, or let the proxy forward requests instead"
    if status == 403 and "host name" in message:
        return f"the server does not serve the host name {host}: add it to allowed_hosts, or set public_url"
    if status == 403 and "origin" in message:
        return f"the server refuses the Origin of this client: add {origin or 'its origin'} to allowed_origins"
    if status == 404:
        return "no MCP endpoint at this path; the address usually ends with /mcp, or with /mcp/research and the like"
    if status in (405, 501):
        return "another program answers at this path: it does not accept POST"
    if status in (502, 503, 504) and not message:
        return (
            f"the reverse proxy answers {status}: it does not reach the server; check the address that it forwards to"
        )
    if response.media_type == "text/html":
        return f"a web page answers (status {status}): the proxy or another program does not forward this path"
    return f"answers status {status}: {message or response.quote()}"
