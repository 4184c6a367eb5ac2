"""OAuth clients: applications that ask people for access.

A client is added by the operator, registers itself (RFC 7591), or is known by the URL of its metadata document (see
`auth.oauth.client_assertions`). Registered clients that are never connected are deleted after a while.
"""

import hmac
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from auth.context import READ, ROLE_SCOPES, SCOPES, WRITE, Role
from auth.control_database import ControlConnection, ControlDatabase, control_operation
from auth.oauth import grants
from auth.oauth.grants import PRIVATE_KEY, OAuthError, invalid_metadata, is_loopback_uri, is_private_use
from auth.oauth.tokens import METHOD
from auth.registry import generate_credential, generate_id, hash_credential
from config.errors import NotFound, Unavailable
from config.settings import ASYMMETRIC_ALGORITHMS, Settings

# Clients register a few redirect URIs; all of them are compared at each authorization.
OAUTH_REDIRECT_URIS_MAX = 20

AUTHORIZATION_CODE = "authorization_code"
REFRESH = "refresh_token"
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
# With an assertion of an identity provider; see `auth.oauth.identity_assertions`.
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
GRANT_TYPES = (AUTHORIZATION_CODE, REFRESH, DEVICE, JWT_BEARER)
AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post")
_NAME_MAX_CHARS = 80
_UNNAMED = "An application without a name"

ClientKind = Literal["manual", "dynamic", "document"]


class ClientMetadata(Struct, frozen=True, omit_defaults=True):
    """The metadata of RFC 7591 section 2 that this server uses. Other members of a registration are ignored."""

    redirect_uris: tuple[str, ...] = ()
    client_name: str = ""
    client_uri: str = ""
    token_endpoint_auth_method: str = ""
    grant_types: tuple[str, ...] = (AUTHORIZATION_CODE, REFRESH)
    response_types: tuple[str, ...] = ("code",)
    application_type: str = ""
    scope: str = ""

    @property
    def is_native(self) -> bool:
        """Whether the client runs on a device. Clients that do not say so are native if none of their redirects leads
        to a web site."""
        if self.application_type:
            return self.application_type == "native"
        return all(is_private_use(uri) or is_loopback_uri(uri) for uri in self.redirect_uris)


class OAuthClient(Struct, frozen=True):
    id: str
    kind: ClientKind
    metadata: ClientMetadata
    secret_hash: bytes | None
    created_at: float
    last_used_at: float | None

    @property
    def name(self) -> str:
        return self.metadata.client_name or _UNNAMED

    @property
    def is_public(self) -> bool:
        return self.secret_hash is None

    def is_secret(self, secret: str) -> bool:
        return self.secret_hash is not None and hmac.compare_digest(hash_credential(secret), self.secret_hash)


def read_metadata(document: Mapping[str, Any]) -> ClientMetadata:
    """Returns valid metadata from a JSON object. Raises `invalid_client_metadata` or `invalid_redirect_uri`."""
    members = {name: value for name, value in document.items() if value not in (None, "")}
    try:
        metadata = msgspec.convert(members, ClientMetadata)
    except msgspec.ValidationError as error:
        raise invalid_metadata(str(error)) from error
    grant_types = tuple(name for name in GRANT_TYPES if name in metadata.grant_types)
    if not grant_types or grant_types == (REFRESH,):
        raise invalid_metadata(f"grant_types: expected {AUTHORIZATION_CODE}, {DEVICE} or {JWT_BEARER}")
    if AUTHORIZATION_CODE in grant_types and "code" not in metadata.response_types:
        raise invalid_metadata("response_types: expected code")
    if metadata.application_type not in ("", "web", "native"):
        raise invalid_metadata("application_type: expected web or native")
    if AUTHORIZATION_CODE in grant_types or metadata.redirect_uris:
        grants.require_redirect_uris(
            metadata.redirect_uris, is_native=metadata.is_native, uris_max=OAUTH_REDIRECT_URIS_MAX
        )
    # The page is shown as a link to the person who is asked for access. Anything but a web page is left out.
    page = metadata.client_uri
    is_web_page = page.startswith("https://") and len(page) <= 500 and page.isascii() and page.isprintable()
    return msgspec.structs.replace(
        metadata,
        client_name=_printable(metadata.client_name),
        client_uri=page if is_web_page else "",
        grant_types=grant_types,
        response_types=("code",) if AUTHORIZATION_CODE in grant_types else (),
        scope=_printable(metadata.scope),
    )


class OAuthClients:
    """The clients that are stored: those of the operator, and those that registered themselves."""

    def __init__(self, database: ControlDatabase, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clients_max = settings.fixed.oauth_clients_max
        self._unused_ttl_s = settings.fixed.oauth_client_unused_ttl_s
        self._idle_ttl_s = settings.oauth_refresh_token_ttl_s
        self._clock = clock

    async def register(self, document: Mapping[str, Any]) -> tuple[OAuthClient, str]:
        """Registers a client (RFC 7591) and returns it with its secret, which is empty for a public client."""
        metadata = read_metadata(document)
        method = metadata.token_endpoint_auth_method or "client_secret_basic"
        if method not in AUTH_METHODS:
            raise invalid_metadata(
                f"token_endpoint_auth_method: expected {', '.join(AUTH_METHODS)}, got {method[:40]!r}"
            )
        metadata = msgspec.structs.replace(metadata, token_endpoint_auth_method=method)
        return await self._insert("dynamic", metadata, has_secret=method != "none")

    async def add(self, document: Mapping[str, Any], *, is_confidential: bool) -> tuple[OAuthClient, str]:
        """Adds a client of the operator."""
        metadata = read_metadata(document)
        method = "client_secret_basic" if is_confidential else "none"
        metadata = msgspec.structs.replace(metadata, token_endpoint_auth_method=method)
        return await self._insert("manual", metadata, has_secret=is_confidential)

    async def find(self, client_id: str) -> OAuthClient | None:
        query = f"{_QUERY} WHERE id = ?"
        row = await self._database.read(lambda db: db.execute(query, (client_id,)).fetchone())
        return _client(row) if row else None

    async def list(self) -> list[OAuthClient]:
        query = f"{_QUERY} ORDER BY kind DESC, created_at"
        return await self._database.read(lambda db: [_client(row) for row in db.execute(query)])

    @control_operation("withdraw")
    def remove(self, db: ControlConnection, client_id: str) -> int:
        """Removes a client and ends all of its connections; returns their number. Clients with a metadata document are
        not stored, so only their connections end."""
        client = db.execute("DELETE FROM oauth_clients WHERE id = ?", (client_id,)).rowcount
        grants = db.execute("DELETE FROM oauth_grants WHERE client_id = ?", (client_id,)).rowcount
        db.execute("DELETE FROM oauth_device_codes WHERE client_id = ?", (client_id,))
        if not client and not grants:
            raise NotFound("client", client_id)
        return grants

    @control_operation("write")
    def _insert(
        self, db: ControlConnection, kind: ClientKind, metadata: ClientMetadata, *, has_secret: bool
    ) -> tuple[OAuthClient, str]:
        secret, now = generate_credential(grants.CLIENT_SECRET) if has_secret else "", self._clock()
        secret_hash = hash_credential(secret) if has_secret else None
        client = OAuthClient(generate_id("c_"), kind, metadata, secret_hash, now, None)
        if kind == "dynamic":
            # Deletes unused clients. At the limit the oldest of them makes room, so that registrations of strangers
            # cannot keep others from registering.
            db.execute(
                f"DELETE FROM oauth_clients WHERE {_UNCONNECTED} AND "  # noqa: S608 - constants only
                "(last_used_at IS NULL AND created_at < ? OR last_used_at < ?)",
                (now - self._unused_ttl_s, now - self._idle_ttl_s),
            )
            (count,) = db.execute("SELECT count(*) FROM oauth_clients WHERE kind = 'dynamic'").fetchone()
            if count >= self._clients_max:
                oldest = f"SELECT id FROM oauth_clients WHERE {_UNCONNECTED} ORDER BY created_at LIMIT 1"  # noqa: S608 - as above
                if not db.execute(f"DELETE FROM oauth_clients WHERE id IN ({oldest})").rowcount:  # noqa: S608 - as above
                    raise Unavailable(
                        "too many clients are registered; ask the operator to add this one", retry_after_s=3600
                    )
        db.execute(
            "INSERT INTO oauth_clients (id, kind, secret_hash, metadata, created_at) VALUES (?, ?, ?, ?, ?)",
            (client.id, kind, secret_hash, msgspec.json.encode(metadata).decode(), now),
        )
        return client, secret


_QUERY = "SELECT id, kind, metadata, secret_hash, created_at, last_used_at FROM oauth_clients"
_UNCONNECTED = "kind = 'dynamic' AND NOT EXISTS (SELECT 1 FROM oauth_grants WHERE client_id = oauth_clients.id)"


def _client(row: tuple[Any, ...]) -> OAuthClient:
    client_id, kind, metadata, *rest = row
    return OAuthClient(client_id, kind, msgspec.json.decode(metadata, type=ClientMetadata), *rest)


def _printable(text: str) -> str:
    """Removes line breaks and characters that change the direction of text, which could disguise a name."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_NAME_MAX_CHARS]


# -- metadata ----------------------------------------------------------------------------------------------------------
# The metadata of the authorization server (RFC 8414), and the paths of its endpoints.
#
# The endpoints are at the root: some clients append `/authorize`, `/token` and `/register` to the address of the server
# instead of reading the metadata.

METADATA_PATH = "/.well-known/oauth-authorization-server"
AUTHORIZE_PATH = "/authorize"
TOKEN_PATH = "/token"  # noqa: S105 - a path
REGISTRATION_PATH = "/register"
REVOCATION_PATH = "/revoke"
DEVICE_AUTHORIZATION_PATH = "/device_authorization"
DEVICE_PATH = "/device"


def authorization_server_metadata(settings: Settings) -> dict[str, Any]:
    base_url = settings.base_url
    methods = [*AUTH_METHODS, *([PRIVATE_KEY] if settings.oauth_client_metadata else [])]
    metadata: dict[str, Any] = {
        "issuer": base_url,
        "authorization_endpoint": base_url + AUTHORIZE_PATH,
        "token_endpoint": base_url + TOKEN_PATH,
        "revocation_endpoint": base_url + REVOCATION_PATH,
        "device_authorization_endpoint": base_url + DEVICE_AUTHORIZATION_PATH,
        "scopes_supported": list(SCOPES),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": [AUTHORIZATION_CODE, REFRESH, DEVICE],
        "token_endpoint_auth_methods_supported": methods,
        "revocation_endpoint_auth_methods_supported": methods,
        "code_challenge_methods_supported": [METHOD],
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": settings.oauth_client_metadata,
        "service_documentation": settings.about_url("documentation"),
        "op_policy_uri": settings.about_url("privacy"),
        "op_tos_uri": settings.about_url("terms"),
    }
    if settings.oauth_client_metadata:
        metadata["token_endpoint_auth_signing_alg_values_supported"] = list(ASYMMETRIC_ALGORITHMS)
        metadata["revocation_endpoint_auth_signing_alg_values_supported"] = list(ASYMMETRIC_ALGORITHMS)
    if any(provider.assertion_grants for provider in settings.openid_providers):
        metadata["grant_types_supported"].append(JWT_BEARER)
        metadata["authorization_grant_profiles_supported"] = ["urn:ietf:params:oauth:grant-profile:id-jag"]
    if settings.oauth_registration:
        metadata["registration_endpoint"] = base_url + REGISTRATION_PATH
    return metadata


# What clients get that ask for nothing in particular.
DEFAULT_SCOPES = frozenset((READ, WRITE))


def requested_scopes(text: str) -> frozenset[str]:
    """Returns the scopes that a client asks for. Scopes of other servers are ignored (RFC 6749 section 3.3): clients
    send `openid`, `offline_access` or a name of their own to every server."""
    return known_scopes(text) or DEFAULT_SCOPES


def known_scopes(text: str) -> frozenset[str]:
    return frozenset(text.split()).intersection(SCOPES)


def grantable_scopes(requested: frozenset[str], role: Role) -> frozenset[str]:
    """Returns the requested scopes that a user can grant."""
    scopes = requested & ROLE_SCOPES[role]
    if not scopes:
        raise OAuthError("invalid_scope", f"scope: expected one that a {role} has, got {' '.join(sorted(requested))}")
    return scopes


def format_scopes(scopes: frozenset[str]) -> str:
    return " ".join(scope for scope in SCOPES if scope in scopes)
