"""What each request says of itself: the modern era's `_meta`, the legacy era's session. Both become one `Call`."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from aggregator.defaults import read_config
from auth.context import RequestContext
from config.errors import InvalidParams, InvalidRequest, UnsupportedVersion
from server.protocol.call import DEFAULT, LOG_LEVELS, Call, Client, Peer
from server.protocol.messages import Request, RequestId
from server.protocol.versions import MODERN_VERSIONS, Era
from sessions.session import Session

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"


class RequestMeta(Struct, frozen=True):
    """The required pair of a modern request, present but not yet judged."""

    version: Any
    client: Client
    log_level: str | None


def names_modern_version(params: Mapping[str, Any]) -> bool:
    """Whether a request carries the modern era's mark; the legacy era never sends it."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and VERSION_KEY in meta


def read_request_meta(params: Mapping[str, Any]) -> RequestMeta:
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        raise InvalidParams(f"params._meta must be an object with {VERSION_KEY} and {CAPABILITIES_KEY}")
    for key in (VERSION_KEY, CAPABILITIES_KEY):
        if key not in meta:
            raise InvalidParams(f"params._meta lacks {key}")
    capabilities = meta[CAPABILITIES_KEY]
    if not isinstance(capabilities, dict):
        raise InvalidParams(f"params._meta[{CAPABILITIES_KEY!r}] must be an object")
    log_level = meta.get(LOG_LEVEL_KEY)
    if log_level is not None and log_level not in LOG_LEVELS:
        raise InvalidParams(f"{LOG_LEVEL_KEY}: got {log_level!r}, expected one of {', '.join(LOG_LEVELS)}")
    name, version = read_implementation(meta.get(CLIENT_KEY))
    return RequestMeta(meta[VERSION_KEY], Client(name, version, capabilities), log_level)


def read_implementation(value: Any) -> tuple[str, str]:
    """Name and version of a client, for logs and for what it is shown; lenient, because nothing is allowed by it."""
    if not isinstance(value, dict):
        return "", ""
    name, version = value.get("name"), value.get("version")
    return (name[:128] if isinstance(name, str) else ""), (version[:64] if isinstance(version, str) else "")


def check_version(version: Any) -> str:
    if not isinstance(version, str):
        raise InvalidParams(f"params._meta[{VERSION_KEY!r}] must be a string")
    if version not in MODERN_VERSIONS:
        raise UnsupportedVersion(version, MODERN_VERSIONS)
    return version


def modern_call(
    meta: RequestMeta, request: Request, context: RequestContext, peer: Peer, profile: str = DEFAULT
) -> Call:
    return Call(
        context=context,
        era=Era.MODERN,
        version=check_version(meta.version),
        client=meta.client,
        peer=peer,
        request_id=request.id,
        profile=profile,
        log_level=meta.log_level,
        progress_token=_progress_token(request.params),
    )


def legacy_call(session: Session, request: Request, context: RequestContext, peer: Peer) -> Call:
    return Call(
        context=context,
        era=Era.LEGACY,
        version=session.version,
        client=Client(session.client_name, session.client_version, session.capabilities),
        peer=peer,
        request_id=request.id,
        session=session,
        profile=session.profile,
        log_level=session.log_level,
        progress_token=_progress_token(request.params),
    )


class InitializeParams(Struct, frozen=True):
    """The parameters of a legacy `initialize`. `config` is ours: defaults for the calls of the session."""

    version: str
    client: Client
    config: Mapping[str, Any]


def read_initialize_params(params: Mapping[str, Any]) -> InitializeParams:
    version, capabilities = params.get("protocolVersion"), params.get("capabilities")
    if not isinstance(version, str):
        raise InvalidParams("protocolVersion must be a string")
    if not isinstance(capabilities, dict):
        raise InvalidParams("capabilities must be an object")
    if not isinstance(params.get("clientInfo"), dict):
        raise InvalidParams("clientInfo must be an object")
    name, client_version = read_implementation(params["clientInfo"])
    config = params.get("config")
    return InitializeParams(
        version, Client(name, client_version, capabilities), read_config({} if config is None else config)
    )


def _progress_token(params: Mapping[str, Any]) -> RequestId | None:
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if token is None or (isinstance(token, str | int) and not isinstance(token, bool)):
        return token
    raise InvalidRequest("progressToken must be a string or an integer")
