"""Builds a `Call` from a request: from the modern era's `_meta`, or from the legacy era's session."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from aggregator.filters import read_config
from auth.context import RequestContext
from config.errors import InvalidParams, InvalidRequest, UnsupportedVersion
from server.protocol.call import CAPABILITIES, DEFAULT_PROFILE, LOG_LEVELS, Call, ClientInfo, Peer
from server.protocol.messages import (
    LEGACY_VERSIONS,
    MODERN_VERSIONS,
    Era,
    Request,
    RequestId,
    json_type,
    require_object,
    require_string,
    wrong_type,
)
from sessions.store import Session

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"


class RequestMeta(Struct, frozen=True):
    """The `_meta` of a modern request. Whether `version` is supported has not been checked yet."""

    version: Any
    client: ClientInfo
    log_level: str | None


def has_modern_meta(params: Mapping[str, Any]) -> bool:
    """Returns whether a request names its protocol version in `_meta`, which only the modern era does."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and VERSION_KEY in meta


def read_request_meta(params: Mapping[str, Any]) -> RequestMeta:
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        raise wrong_type("params._meta", f"an object with {VERSION_KEY} and {CAPABILITIES_KEY}", meta)
    for key in (VERSION_KEY, CAPABILITIES_KEY):
        if key not in meta:
            raise InvalidParams(f"params._meta: {key} is missing")
    capabilities = meta[CAPABILITIES_KEY]
    if not isinstance(capabilities, dict):
        raise wrong_type(CAPABILITIES_KEY, "an object", capabilities)
    log_level = meta.get(LOG_LEVEL_KEY)
    if log_level is not None and log_level not in LOG_LEVELS:
        raise InvalidParams(f"{LOG_LEVEL_KEY}: expected one of {', '.join(LOG_LEVELS)}, got {log_level!r}")
    name, version = read_implementation(meta.get(CLIENT_KEY))
    return RequestMeta(meta[VERSION_KEY], ClientInfo(name, version, capabilities), log_level)


def read_implementation(value: Any) -> tuple[str, str]:
    """Returns a client's name and version. Malformed values become "": no decision depends on them."""
    if not isinstance(value, dict):
        return "", ""
    # Sessions and log lines keep both.
    name, version = value.get("name"), value.get("version")
    return (name[:128] if isinstance(name, str) else ""), (version[:64] if isinstance(version, str) else "")


def check_version(version: Any) -> str:
    if not isinstance(version, str):
        raise wrong_type(VERSION_KEY, "a string", version)
    if version not in MODERN_VERSIONS:
        raise UnsupportedVersion(version, MODERN_VERSIONS)
    return version


def modern_call(
    meta: RequestMeta, request: Request, context: RequestContext, peer: Peer, profile: str = DEFAULT_PROFILE
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
        client=ClientInfo(session.client_name, session.client_version, session.capabilities),
        peer=peer,
        request_id=request.id,
        session=session,
        profile=session.profile,
        log_level=session.log_level,
        progress_token=_progress_token(request.params),
    )


class InitializeParams(Struct, frozen=True):
    """The parameters of a legacy `initialize`. `config` is our extension: defaults for the session's calls."""

    version: str
    client: ClientInfo
    config: Mapping[str, Any]


def with_handshake_defaults(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns parameters of `initialize` for clients of tldw, which may leave out all of them."""
    return {"protocolVersion": LEGACY_VERSIONS[0], "capabilities": {}, "clientInfo": {}, **params}


def read_initialize_params(params: Mapping[str, Any]) -> InitializeParams:
    version = require_string(params, "protocolVersion")
    # Only names decide anything, and a session keeps them for a long time.
    declared = require_object(params, "capabilities")
    capabilities: dict[str, Any] = {name: {} for name in CAPABILITIES if declared.get(name) is not None}
    name, client_version = read_implementation(require_object(params, "clientInfo"))
    config = params.get("config")
    client = ClientInfo(name, client_version, capabilities)
    return InitializeParams(version, client, read_config({} if config is None else config))


def _progress_token(params: Mapping[str, Any]) -> RequestId | None:
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if token is None or (isinstance(token, str | int) and not isinstance(token, bool)):
        return token
    raise InvalidRequest(f"progressToken: expected a string or an integer, got {json_type(token)}")
