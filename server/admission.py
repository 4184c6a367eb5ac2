"""Admission: decides whether a request is served, and for whom. HTTP, WebSocket, REST and HTML pages all use it.

The checks run in this order: origin, profile of the address, credential, scope, profile of the credential, rate limit,
request options. The credential alone decides whose data a request can reach. On the socket of the data directory
the origin is not checked: no browser can be made to connect to it.
"""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from msgspec import Struct, structs

from auth.audit import Audit
from auth.authenticator import Authenticator, basic_to_bearer
from auth.context import READ, Principal, RequestContext, SessionId, build_context
from auth.rate_limits import RateLimits
from auth.tickets import RejectedCredentials, Tickets, ticket_rejected
from config.errors import FlorilegiumError, Forbidden, InvalidRequest, RateLimited, Unauthenticated, Unavailable
from config.logging import RequestFields, request_fields
from config.paths import DataRoot, UserId
from config.settings import Settings
from server.directory_lock import USER_HEADER
from server.protocol.catalog import Profiles
from server.transports.client_connections import ClientConnection, OpenStreams, connection_of
from server.transports.headers import (
    CONFIG,
    HEADER_VALUES,
    NO_CONFIG,
    Headers,
    OriginGuard,
    query_values,
    request_config,
)
from sources.storage.contract import Libraries

if TYPE_CHECKING:
    from server.operations.operation import Operation


# -- call limits -------------------------------------------------------------------------------------------------------
# Whether a call may start: the queue of the user's jobs and the rates of the user and the tool. MCP and REST calls
# share it.


class CallLimits:
    def __init__(self, libraries: Libraries, limits: RateLimits) -> None:
        self._libraries = libraries
        self._limits = limits

    def require_capacity(self, user_id: UserId) -> None:
        """Raises Overloaded if a call of the user would wait too long."""
        self._libraries.require_capacity(user_id)

    async def charge(self, principal: Principal, requests: int = 1) -> None:
        """Counts requests against the user's rate limit. Commands of the operator have none, as on the files."""
        if principal.kind != "operator":
            await self._limits.user.take(principal.user_id, requests)

    async def take(self, principal: Principal, tool: str) -> None:
        """Counts a call of a user and a tool. The queue is checked first: a refused call is not charged."""
        if principal.kind != "operator":
            self._libraries.require_capacity(principal.user_id)
            await self._limits.tool.take((principal.user_id, tool))


# The config in a header or URL of a request: all options together have a few hundred bytes.
_CONFIG_MAX_BYTES = 2 * 1024

# An attack from many addresses must not fill the audit log.
_AUDIT_REJECTIONS_PER_HOUR = 100

_USER_HEADER = USER_HEADER.lower().encode()

# The subprotocol by which clients of tldw announce that the next one is their token.
BEARER_SUBPROTOCOL = "bearer"

# Why a request was not authenticated: no credential, an invalid one, or too many invalid ones from its address.
AuthFailure = Literal["missing", "rejected", "refused"]


class IncomingRequest(Struct, frozen=True):
    """The parts of an HTTP request or WebSocket upgrade that admission depends on."""

    headers: Headers
    address: str
    query: bytes
    connection: ClientConnection | None
    # Whether the request came through the socket of the data directory. Nothing that a client sends decides it.
    is_operator: bool
    subprotocols: tuple[str, ...]
    # The log line of the request.
    log: RequestFields

    @classmethod
    def from_scope(cls, scope: Mapping[str, Any]) -> "IncomingRequest":
        client, connection = scope.get("client"), connection_of(scope)
        return cls(
            Headers(scope["headers"], scope.get(HEADER_VALUES)),
            client[0] if client else "",
            scope["query_string"],
            connection,
            connection is not None and connection.is_operator,
            tuple(scope["subprotocols"]) if "subprotocols" in scope else (),
            request_fields(),
        )

    @property
    def connection_authorization(self) -> str | None:
        """The credential of a WebSocket upgrade. Clients that cannot set headers offer the subprotocols `bearer` and
        the token itself, or send the token as a Basic password."""
        # The token that follows `bearer` in the list of subprotocols.
        names = [name.lower() for name in self.subprotocols]
        position = names.index(BEARER_SUBPROTOCOL) + 1 if BEARER_SUBPROTOCOL in names else len(self.subprotocols)
        token = self.subprotocols[position] if position < len(self.subprotocols) else None
        authorization = basic_to_bearer(self.headers.authorization())
        if token is None:
            return authorization
        bearer = f"Bearer {token}"
        if authorization is not None and authorization != bearer:
            raise InvalidRequest("Sec-WebSocket-Protocol: expected one credential, got another in a header")
        return bearer


class AdmittedRequest(Struct, frozen=True):
    """A request that passed all checks. `profile` is the profile that its address names, if any."""

    headers: Headers
    principal: Principal
    request_id: str
    profile: str | None
    config: Mapping[str, Any]
    connection: ClientConnection | None


def with_config_defaults(request: AdmittedRequest, defaults: Mapping[str, Any]) -> AdmittedRequest:
    """Adds the defaults of an address, which those of the request override."""
    return structs.replace(request, config={**defaults, **request.config}) if defaults else request


class OutsideProfile(FlorilegiumError, status=403):
    """The credential is restricted to a profile that does not permit the operation."""

    def __init__(self, operation: str, profile: str | None) -> None:
        super().__init__(f"{operation} is not part of the profile {profile!r} of this API key")


class OutsideSources(FlorilegiumError, status=403):
    """The credential is restricted to sources with which the operation cannot be used."""

    def __init__(self, operation: "Operation", sources: frozenset[str]) -> None:
        needed = "all sources" if operation.source is None else f"the source {operation.source}"
        permitted = ", ".join(sorted(sources))
        super().__init__(f"{operation.id} needs {needed}; this credential is restricted to {permitted}")


class Admission:
    def __init__(
        self,
        settings: Settings,
        data_root: DataRoot,
        authenticator: Authenticator,
        limits: CallLimits,
        tickets: Tickets,
        profiles: Profiles,
        open_streams: OpenStreams,
        audit: Audit,
    ) -> None:
        self._audit = audit
        # Requests without a valid credential by kind, since the start of the process.
        self.failures: Counter[AuthFailure] = Counter()
        self._rejections = RejectedCredentials(audit, _AUDIT_REJECTIONS_PER_HOUR)
        self._data_root = data_root
        self._authenticator = authenticator
        self._limits = limits
        self._tickets = tickets
        self._origins = OriginGuard(settings)
        self._profiles = profiles
        self._open_streams = open_streams

    def check_origin(self, headers: Headers) -> None:
        self._origins.check(headers)

    def check_probe(self, headers: Headers) -> None:
        self._origins.check_probe(headers)

    async def authenticate(self, request: IncomingRequest, authorization: str | None) -> Principal:
        try:
            if request.is_operator and authorization is None:
                name = request.headers.get(_USER_HEADER)
                principal = await self._authenticator.authenticate_operator(None if name is None else unquote(name))
            else:
                principal = await self._authenticator.authenticate(authorization, address=request.address)
        except (Unauthenticated, RateLimited) as error:
            self._record_rejection(request, error)
            raise
        _identify(request, principal)
        return principal

    async def admit(self, request: IncomingRequest, profile: str | None = None) -> AdmittedRequest:
        """Admits an MCP request. `profile` is the profile that the address names, if any.

        The profile is checked before the credential: for a mistyped address that error is more useful.
        """
        if not request.is_operator:
            self._origins.check(request.headers)
        if profile is not None:
            self._profiles.get(profile)
        principal = await self.authenticate(request, request.headers.authorization())
        if not principal.scopes:
            raise Forbidden(READ)
        await self._limits.charge(principal)
        return self._admitted(request, principal, profile)

    async def admit_operation(
        self, request: IncomingRequest, authorization: str | None, operation: "Operation"
    ) -> AdmittedRequest:
        """Admits a request for a REST operation or a page."""
        if not request.is_operator:
            self._origins.check(request.headers)
        return await self._admit_principal(request, await self.authenticate(request, authorization), operation)

    async def admit_browser(
        self, request: IncomingRequest, principal: Principal, operation: "Operation"
    ) -> AdmittedRequest:
        """Admits a request of a browser session, whose principal is known."""
        self.check_origin(request.headers)
        principal = await self._authenticator.recheck(principal)
        _identify(request, principal)
        return await self._admit_principal(request, principal, operation)

    async def _admit_principal(
        self, request: IncomingRequest, principal: Principal, operation: "Operation"
    ) -> AdmittedRequest:
        request.log.tool = operation.id
        if not any(map(principal.has_scope, operation.other_scopes)):
            principal.require_scope(operation.scope)
        if not any(self._profiles.permits(principal, tool) for tool in operation.tools):
            raise OutsideProfile(operation.id, principal.profile)
        is_permitted = operation.source is None or principal.permits_source(operation.source)
        if principal.sources is not None and (operation.needs_all_sources or not is_permitted):
            raise OutsideSources(operation, principal.sources)
        await self.charge(principal)
        return self._admitted(request, principal, None)

    async def admit_connection(self, request: IncomingRequest, profile: str | None) -> AdmittedRequest:
        """Admits a WebSocket connection. `readmit` then checks each of its requests.

        Clients that cannot set headers send a ticket in the query string, or the token as a subprotocol or as a Basic
        password.
        """
        if not request.is_operator:
            self._origins.check(request.headers)
        if profile is not None:
            self._profiles.get(profile)
        if tickets := query_values(request.query, "ticket"):
            try:
                principal = await self._tickets.redeem(tickets[0])
                # The rights of the operator stay on the socket of the data directory.
                if principal.kind == "operator" and not request.is_operator:
                    raise ticket_rejected()
                # The credential may have been revoked since the ticket was issued.
                principal = await self._authenticator.recheck(principal)
            except Unauthenticated as error:
                self._record_rejection(request, error)
                raise
            _identify(request, principal)
        else:
            principal = await self.authenticate(request, request.connection_authorization)
        if not principal.scopes:
            raise Forbidden(READ)
        return self._admitted(request, principal, profile)

    async def readmit(self, principal: Principal) -> Principal:
        """Checks a request on an open connection: the server runs, the principal has access and is within its rate.
        Returns the principal with the libraries that it may use now."""
        self.require_running()
        principal = await self._authenticator.recheck(principal)
        await self.charge(principal)
        return principal

    def require_running(self) -> None:
        if self._open_streams.is_stopping:
            raise Unavailable("the server is stopping")

    async def charge(self, principal: Principal, requests: int = 1) -> None:
        """Counts requests against the user's rate limit."""
        await self._limits.charge(principal, requests)

    def context(
        self,
        admitted: AdmittedRequest,
        session_id: SessionId | None = None,
        *,
        request_id: str | None = None,
        is_agent: bool = True,
        principal: Principal | None = None,
    ) -> RequestContext:
        """Builds the request context. A connection passes the id and the rechecked principal of each of its
        requests."""
        return build_context(
            principal or admitted.principal,
            self._data_root,
            request_id or admitted.request_id,
            session_id,
            admitted.config,
            is_agent=is_agent,
            # The operator reads the files of all users without a trace, too. Agents that work for one are recorded.
            read_log=self._audit if is_agent or admitted.principal.kind != "operator" else None,
        )

    def record_rejections(self, *, is_last: bool = False) -> None:
        """Records the rejected credentials that were only counted, if it is time or if no more will come."""
        self._rejections.flush(is_last=is_last)

    def _record_rejection(self, request: IncomingRequest, error: Unauthenticated | RateLimited) -> None:
        """A request without a credential is not recorded: clients send one to learn how to sign in."""
        if isinstance(error, RateLimited):
            self.failures["refused"] += 1
            self._rejections.record(request.address, "too many rejected credentials")
        elif error.presented:
            self.failures["rejected"] += 1
            self._rejections.record(request.address, error.reason or error.message)
        else:
            self.failures["missing"] += 1

    def _admitted(self, request: IncomingRequest, principal: Principal, profile: str | None) -> AdmittedRequest:
        config = NO_CONFIG
        if request.query or CONFIG in request.headers.values:
            config = request_config(request.headers, request.query, _CONFIG_MAX_BYTES)
        return AdmittedRequest(request.headers, principal, request.log.request_id, profile, config, request.connection)


def _identify(request: IncomingRequest, principal: Principal) -> None:
    """Adds the caller to the log line of the request, and assigns the connection to the user."""
    request.log.user, request.log.client = principal.user_name, principal.client_id
    if request.connection is not None:
        request.connection.assign(principal.user_id)
