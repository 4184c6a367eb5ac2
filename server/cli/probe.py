"""Asks a running server whether it is alive. No proxy, no redirect: the answer must be that server's own."""

import http.client
import urllib.request

import msgspec
from msgspec import Struct

from config.errors import Unavailable

TIMEOUT_S = 5.0
_ANSWER_MAX_BYTES = 65_536


class Health(Struct, frozen=True):
    """What `/healthz` says."""

    status: str
    version: str


def ask_health(base_url: str, timeout_s: float = TIMEOUT_S) -> Health:
    """The server's answer; Unavailable when there is none, or when it is not one of ours."""
    opener = urllib.request.OpenerDirector()
    for handler in (urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
        opener.add_handler(handler())
    url = base_url.removesuffix("/healthz") + "/healthz"
    try:
        with opener.open(url, timeout=timeout_s) as response:
            status, body = response.status, response.read(_ANSWER_MAX_BYTES)
        if status != 200:
            raise Unavailable(f"{url} answers with HTTP status {status}")
        return msgspec.json.decode(body, type=Health)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"{url} answers, but not as Florilegium does") from error
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{url} does not answer: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason or type(reason).__name__).lower()
