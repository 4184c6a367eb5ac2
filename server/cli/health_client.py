"""Fetches the health of a running server, without proxies or redirects, so that only that server can answer."""

import http.client
import urllib.request

import msgspec
from msgspec import Struct

from config.errors import Unavailable

TIMEOUT_S = 5.0
_RESPONSE_MAX_BYTES = 65_536


class Health(Struct, frozen=True):
    """The response of `/healthz`."""

    status: str
    version: str


def fetch_health(base_url: str, timeout_s: float = TIMEOUT_S) -> Health:
    """Returns the server's health. Raises Unavailable if it does not respond or is not a Florilegium server."""
    opener = urllib.request.OpenerDirector()
    for handler in (urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
        opener.add_handler(handler())
    url = base_url.removesuffix("/healthz") + "/healthz"
    try:
        with opener.open(url, timeout=timeout_s) as response:
            status, body = response.status, response.read(_RESPONSE_MAX_BYTES)
        if status != 200:
            raise Unavailable(f"{url} returned HTTP status {status}")
        return msgspec.json.decode(body, type=Health)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"{url} responds, but is not a Florilegium server") from error
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{url} does not respond: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason or type(reason).__name__).lower()
