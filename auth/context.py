"""The request context: everything a call may know about its caller, built in one place from the principal alone."""

# About this package: Start with `context`: the principal and the request context, which every call receives. Then
# `authenticator`, which turns a credential into a principal. The rest follows the kinds of credentials: API keys:
# `registry`, with the users they belong to. JSON Web Tokens: `tokens` checks their claims, `signing_keys` finds the
# key, `signatures` verifies. OAuth tokens that this server issues: `oauth`. People in browsers: `accounts` and `openid`
# sign them in, `browser_sessions` keeps them signed in and shows them what else has access. WebSocket tickets:
# `tickets`, which also has the keys that sign what clients carry between two requests. Users, keys, grants, follows and
# quotas are in the control database. Its contract and its tables are in `control_database`;
# `sqlite_control` and `postgres_control` are the engines. A change by any process moves its revision, and results that
# were cached before are not used again: that is how a revocation takes effect at the next call.

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, NewType, Protocol

from msgspec import Struct, field, structs

from config.errors import Forbidden, NotFound
from config.paths import DatabasePaths, DataRoot, UserId

# -- principal ---------------------------------------------------------------------------------------------------------
# The principal: who is calling and with which scopes. Built from a verified credential, never from an argument.

ClientId = NewType("ClientId", str)

READ = "knowledge:read"
WRITE = "knowledge:write"
ADMIN = "admin"
SCOPES: tuple[str, ...] = (READ, WRITE, ADMIN)

Role = Literal["reader", "writer", "admin"]
# The scopes that the credentials of a user with that role can have.
ROLE_SCOPES: Mapping[Role, frozenset[str]] = {
    "reader": frozenset((READ,)),
    "writer": frozenset((READ, WRITE)),
    "admin": frozenset(SCOPES),
}


class Owner(NamedTuple):
    """What a session is bound to. The epoch changes when the user's access is withdrawn, which orphans old sessions."""

    user_id: UserId
    client_id: ClientId
    epoch: int


class ShareRule(Struct, frozen=True):
    """What someone shares of their own library: the items with a tag, those of a source, or the conversations of a
    namespace. What is added later under the same rule is shared too."""

    by: Literal["tag", "source", "namespace"]
    value: str

    @property
    def source(self) -> str | None:
        """The one source whose items the rule can cover; None if it covers those of all sources."""
        return {"source": self.value, "namespace": "chats"}.get(self.by)


class LibraryAccess(Struct, frozen=True):
    """A library of someone else that a caller may use: that of a group, or what a person shares of their own.

    `handle` is part of the URIs of its items and never changes. `name` is for people, and for the filter `library:`.
    A library that a group owns has no rule. What a person shares always has one, and can only be read. It ends with
    the account of that person, at `expires_at`.
    """

    handle: str
    name: str
    owner_id: UserId
    role: Literal["reader", "writer", "manager"] = "reader"
    rule: ShareRule | None = None
    expires_at: float | None = None

    @property
    def can_write(self) -> bool:
        return self.rule is None and self.role != "reader"


class Principal(Struct, frozen=True):
    """A verified caller.

    `epoch` increases each time the user's access is withdrawn, so that earlier grants no longer match. `profile`, if
    set, restricts this credential to the tools of that profile, and `sources` to these sources. `signed_in_at` is when
    the person signed in, or when the token was issued; a key has none. The operator is who has the files of all users,
    on the command line of this machine. `libraries` are those of others that the credential may use now: they come from
    memberships and shares when the credential is checked, and a cached principal is not used after those have changed.
    `library_limit`, if set, has the handles to which the credential restricts them.
    """

    user_id: UserId
    user_name: str
    client_id: ClientId
    scopes: frozenset[str]
    kind: Literal["jwt", "key", "oauth", "browser", "local", "operator"]
    credential_id: str
    epoch: int = 0
    expires_at: float | None = None
    profile: str | None = None
    sources: frozenset[str] | None = None
    signed_in_at: float | None = None
    libraries: tuple[LibraryAccess, ...] = ()
    library_limit: frozenset[str] | None = None

    @property
    def is_for_agents(self) -> bool:
        """Whether the credential belongs to a connected application, or is restricted as those of agents are. It must
        not change the account or the server, or reach files of the server with its user's rights."""
        return self.kind == "oauth" or (self.profile, self.sources, self.library_limit) != (None, None, None)

    @property
    def key_id(self) -> str | None:
        """The id of the API key that the caller sent, if it was one."""
        return self.credential_id if self.kind == "key" else None

    def find_libraries(self, name: str) -> list[LibraryAccess]:
        """Returns the library of others with this handle, or those with this name, which several may have."""
        for access in self.libraries:
            if access.handle == name:
                return [access]
        return [access for access in self.libraries if access.name.casefold() == name.casefold()]

    def library_handles(self, names: Iterable[str]) -> frozenset[str]:
        """Returns the handles of the libraries with these names or handles. `-` and `own` name the caller's own, which
        has none. Raises NotFound for a library that the principal may not use, as for one that does not exist."""
        handles: set[str] = set()
        for name in names:
            found = self.find_libraries(name)
            if not found and name not in ("-", "own", ""):
                raise NotFound("library", name[:60])
            handles.update(access.handle for access in found)
        return frozenset(handles)

    def permits_library(self, handle: str) -> bool:
        return self.library_limit is None or handle in self.library_limit

    def permits_source(self, source: str) -> bool:
        return self.sources is None or source in self.sources

    def has_scope(self, scope: str) -> bool:
        return scope in self.scopes

    def require_scope(self, scope: str) -> None:
        """Raises Forbidden if the scope is missing."""
        if scope not in self.scopes:
            raise Forbidden(scope)

    def is_expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def owner(self) -> Owner:
        return Owner(self.user_id, self.client_id, self.epoch)


SessionId = NewType("SessionId", str)

_NO_CONFIG: Mapping[str, Any] = MappingProxyType({})


class ReadLog(Protocol):
    """Records which client read which item of whom."""

    def record_read(self, principal: Principal, uri: str, owner_id: UserId | None = None) -> None: ...


class RequestContext(Struct, frozen=True):
    """Passed to every tool. No argument, header or URL can change which user's data it leads to.

    Agents must not see human-only messages. Every caller is treated as an agent unless its transport knows otherwise.
    `received_at` is what "today" refers to, so that it is the same day in every part of a call. `library` is set in a
    context that leads to a library of someone else, which only `within` builds.
    """

    user_id: UserId
    client_id: ClientId
    scopes: frozenset[str]
    db_paths: DatabasePaths
    session: SessionId | None
    config: Mapping[str, Any]
    request_id: str
    principal: Principal
    is_agent: bool = True
    received_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    read_log: ReadLog | None = None
    library: LibraryAccess | None = None
    data_root: DataRoot | None = None

    def within(self, access: LibraryAccess, data_root: DataRoot | None = None) -> "RequestContext":
        """The context of the same call in a library of someone else: with its paths, with no more scopes than the
        access gives, and never with human-only messages, which stay with their owner."""
        if access not in self.principal.libraries:
            raise Forbidden(READ)
        scopes = self.scopes & (ROLE_SCOPES["writer"] if access.can_write else ROLE_SCOPES["reader"])
        root = data_root or self.data_root
        assert root is not None
        paths = _paths_of(root, access.owner_id)
        return structs.replace(
            self, user_id=access.owner_id, scopes=scopes, db_paths=paths, library=access, is_agent=True
        )

    def record_read(self, uri: str) -> None:
        """Records that the text of an item was delivered to the caller. Snippets of hits are not recorded."""
        if self.read_log is not None:
            self.read_log.record_read(self.principal, uri, self.user_id)


def build_context(
    principal: Principal,
    data_root: DataRoot,
    request_id: str,
    session: SessionId | None = None,
    config: Mapping[str, Any] = _NO_CONFIG,
    *,
    is_agent: bool = True,
    read_log: ReadLog | None = None,
) -> RequestContext:
    return RequestContext(
        user_id=principal.user_id,
        client_id=principal.client_id,
        scopes=principal.scopes,
        db_paths=_paths_of(data_root, principal.user_id),
        session=session,
        config=config,
        request_id=request_id,
        principal=principal,
        is_agent=is_agent,
        received_at=datetime.now(UTC),
        read_log=read_log,
        data_root=data_root,
    )


@lru_cache(maxsize=1024)
def _paths_of(data_root: DataRoot, user_id: UserId) -> DatabasePaths:
    """Cached because joining paths costs more than the rest of a context, and a user's paths never change."""
    return data_root.paths_of(user_id)
