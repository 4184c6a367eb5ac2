"""The audit log: a user's own events and reads, and for administrators those of all users. Also recent MCP calls."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from auth.audit import READ_ACTION, AuditEvent, AuditFilter
from auth.context import ADMIN, RequestContext
from auth.sharing import RoleNeeded
from config.errors import Forbidden, InvalidParams, NotFound
from config.numbers import clamp
from config.paths import UserId
from config.times import format_timestamp, parse_time
from server.operations.items import parse_item_uri
from server.operations.operation import NOT_FOUND, account_operation, from_record
from server.services import Services
from sources.installed import ITEM_KINDS
from sources.items import short_title
from sources.kinds import title_of
from sources.storage.contract import Library

if TYPE_CHECKING:
    from server.runtime import Runtime

_LIMIT_MAX = 1_000
# Titles are looked up one by one.
_TITLES_MAX = 100

_Since = Annotated[str | None, Meta(description="Only events since this time, such as 2026-01-31T00:00:00Z.")]
_Limit = Annotated[int, Meta(description="Events per page, 1..1000.")]
# The ids of events are 64-bit integers in both engines.
_EventId = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Before = Annotated[_EventId | None, Meta(description="next_before of the previous page.")]


class AuditRequest(Struct, frozen=True, kw_only=True):
    user: Annotated[str | None, Meta(description="Only events of this user, by name. Needs the scope admin.")] = None
    action: Annotated[str | None, Meta(description="Only this action, such as key.create or read.")] = None
    reads: Annotated[bool, Meta(description="Include reads of items, unless action is set.")] = True
    since: _Since = None
    limit: _Limit = 100
    before: _Before = None


class ReadsRequest(Struct, frozen=True, kw_only=True):
    uri: Annotated[str | None, Meta(description="Only reads of this item.")] = None
    titles: Annotated[bool, Meta(description="Also return the titles of the items; at most 100 per page.")] = False
    since: _Since = None
    limit: _Limit = 100
    before: _Before = None
    library: Annotated[str | None, Meta(description="Reads in the library of a group that you manage.")] = None


class AuditEntry(Struct, frozen=True, kw_only=True):
    """`client` is the id of an API key, an OAuth client or an application, `client_name` its name if it is known.
    `target_name` is the name of a target that is a user, a key or an application."""

    id: int
    time: str
    action: str
    user: str
    target: str
    target_name: str
    client: str
    client_name: str
    address: str
    detail: str
    count: int


class AuditPage(Struct, frozen=True):
    """Newest first. `next_before` requests the next page; it is null on the last one."""

    events: Sequence[AuditEntry]
    next_before: int | None


class ReadEntry(Struct, frozen=True, kw_only=True):
    """`count` is how often the item was read within a moment, for example page by page. `title` is null if it was not
    requested, or if the item is deleted. `reader` is who read it, if that is someone else."""

    id: int
    time: str
    uri: str
    title: str | None
    client: str
    client_name: str
    count: int
    reader: str | UnsetType = UNSET


class ReadPage(Struct, frozen=True):
    reads: Sequence[ReadEntry]
    next_before: int | None


@account_operation("GET /api/v1/audit", other_scopes=(ADMIN,), error_statuses=NOT_FOUND)
async def list_audit_events(context: RequestContext, services: Services, request: AuditRequest) -> AuditPage:
    """List audit events

    Who signed in, which client read which item, and changes of users, keys and connections, newest first. Users see
    their own events; with the scope admin, those of all users.
    """
    where = AuditFilter(
        user_id=await _user_id(context, services, request.user),
        actions=(request.action,) if request.action is not None else (),
        excluded_actions=() if request.reads or request.action is not None else (READ_ACTION,),
        since=_since(request.since),
        before=request.before,
    )
    events, next_before = await _page(services, where, request.limit)
    users: dict[str, str] = {user.id: user.name for user in await services.registry.list_owners()}
    # The names of other users are for administrators only: to others, a target that is a user stays an id.
    targets = users if context.principal.has_scope(ADMIN) else {}
    # An administrator who sees the events of all users sees the names of all keys, but of no applications.
    names = await _client_names(services, None if where.user_id is None else context.user_id)
    entries = [
        from_record(
            AuditEntry,
            event,
            time=format_timestamp(event.time),
            user=users.get(event.user_id, event.user_id),
            target_name=targets.get(event.target) or names.get(event.target, ""),
            client_name=names.get(event.client, ""),
        )
        for event in events
    ]
    return AuditPage(entries, next_before)


@account_operation("GET /api/v1/reads")
async def list_reads(context: RequestContext, services: Services, request: ReadsRequest) -> ReadPage:
    """List reads of your items

    Which client read which of your items, newest first, and who, if you share them. Whole items, passages, transcripts
    and messages count as read; snippets in a list of hits do not. Managers of a group see the reads in its library.
    """
    if context.library is not None and context.library.role != "manager":
        raise RoleNeeded
    where = AuditFilter(
        user_id=context.user_id,
        actions=(READ_ACTION,),
        target=request.uri,
        since=_since(request.since),
        before=request.before,
    )
    limit = min(request.limit, _TITLES_MAX) if request.titles else request.limit
    events, next_before = await _page(services, where, limit)
    names = await _client_names(services, context.user_id)
    titles: dict[str, str | None] = {}
    if request.titles:
        async with services.libraries.library(context) as library:
            titles = {uri: await _title(library, uri) for uri in {event.target for event in events}}
    entries = [
        from_record(
            ReadEntry,
            event,
            time=format_timestamp(event.time),
            uri=event.target,
            title=titles.get(event.target),
            client_name=names.get(event.client, ""),
            reader=event.detail or UNSET,
        )
        for event in events
    ]
    return ReadPage(tuple(entries), next_before)


class CallsRequest(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(description="How many calls, 1..1000.")] = 50


class RecordedCall(Struct, frozen=True, kw_only=True):
    """`client` is the id of an API key or of an application, `client_name` its name if it is known, `application` what
    the client calls itself. `outcome` is ok, failed, refused, unavailable, cancelled, error or input_required."""

    time: str
    method: str
    tool: str
    client: str
    client_name: str
    application: str
    outcome: str
    ms: float


class CallList(Struct, frozen=True):
    calls: Sequence[RecordedCall]


@account_operation("GET /api/v1/calls")
async def list_calls(context: RequestContext, services: "Runtime", request: CallsRequest) -> CallList:
    """List your recent MCP calls

    Which tools, resources and prompts your clients used, newest first, without arguments and results. They are kept for
    a day at most, and until the server is restarted.
    """
    # Kept in memory, and shared by all workers through Redis if there are several.
    calls = await services.stores.recent_calls.list(context.user_id, clamp(request.limit, 1, _LIMIT_MAX))
    names = await _client_names(services, context.user_id)
    return CallList(
        [
            from_record(
                RecordedCall,
                call,
                time=format_timestamp(call.time),
                client_name=names.get(call.client, ""),
                ms=round(call.seconds * 1000, 1),
            )
            for call in calls
        ]
    )


# Decided here and not by the scope of the operation, because everyone may see their own events.
async def _user_id(context: RequestContext, services: Services, name: str | None) -> str | None:
    """Returns whose events are listed; None means all users, which needs the scope admin."""
    is_admin = context.principal.has_scope(ADMIN)
    if name is None or name == context.principal.user_name:
        return None if is_admin and name is None else context.user_id
    if not is_admin:
        raise Forbidden(ADMIN)
    user = await services.registry.user_by_name(name)
    if user is None:
        raise NotFound("user", name)
    return user.id


async def _page(services: Services, where: AuditFilter, limit: int) -> tuple[list[AuditEvent], int | None]:
    limit = clamp(limit, 1, _LIMIT_MAX)
    events = await services.audit.select(where, limit + 1)  # one more tells whether there is a next page
    return events[:limit], events[limit - 1].id if len(events) > limit else None


async def _client_names(services: Services, user_id: UserId | None) -> dict[str, str]:
    """Returns the names of API keys by id, and those of the connected applications of one user."""
    connections = await services.oauth_grants.list(user_id) if user_id is not None else ()
    keys = await services.registry.list_keys(user_id)
    return {grant.client_id: grant.client_name for grant in connections} | {key.id: key.name for key in keys}


async def _title(library: Library, uri: str) -> str | None:
    """Returns the title of an item, or of the conversation of a message; None if there is no such item."""
    # The log outlasts items, and sources that were installed once: neither is an error here.
    try:
        address = parse_item_uri(uri)
        item = await library.collection(address.source).get(address.key)
    except (NotFound, InvalidParams):
        return None
    return short_title(title_of(ITEM_KINDS[address.source], item))


def _since(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parse_time(text).timestamp()
    except (ValueError, OverflowError):
        raise InvalidParams(f"since: expected a time such as 2026-01-31T00:00:00Z, got {text[:40]!r}") from None
