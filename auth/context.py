"""The request context: everything a call may know about its caller, built in one place from the principal alone."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NewType, Protocol

from msgspec import Struct, field

from auth.principal import ClientId, Principal
from config.paths import DatabasePaths, DataRoot, UserId

SessionId = NewType("SessionId", str)

_NO_CONFIG: Mapping[str, Any] = MappingProxyType({})


class ReadLog(Protocol):
    """Records which client read which item."""

    def record_read(self, principal: Principal, uri: str) -> None: ...


class RequestContext(Struct, frozen=True):
    """Passed to every tool. No argument, header or URL can change which user's data it leads to.

    Agents must not see human-only messages. Every caller is treated as an agent unless its transport knows otherwise.
    `received_at` is what "today" refers to, so that it is the same day in every part of a call.
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

    def record_read(self, uri: str) -> None:
        """Records that the text of an item was delivered to the caller. Snippets of hits are not recorded."""
        if self.read_log is not None:
            self.read_log.record_read(self.principal, uri)


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
        read_log=read_log,
    )


@lru_cache(maxsize=1024)
def _paths_of(data_root: DataRoot, user_id: UserId) -> DatabasePaths:
    """Cached because joining paths costs more than the rest of a context, and a user's paths never change."""
    return data_root.paths_of(user_id)
