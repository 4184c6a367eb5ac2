"""The caller's own account: what the credential allows, connected applications, how much of the quota is used, browser
sessions and passkeys."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from auth.accounts.passkeys import Passkeys
from auth.browser_sessions import BrowserSession
from auth.context import RequestContext
from auth.oauth.grants import GrantRecord
from config.errors import NotFound
from config.times import format_time_seconds
from server.import_jobs import IMPORT_JOBS_MAX_PER_USER
from server.operations.operation import NOT_FOUND, NoArguments, account_operation, from_record, operation
from server.services import Services

if TYPE_CHECKING:
    from server.runtime import Runtime


class UsageResponse(Struct, frozen=True, kw_only=True):
    """What the user stores and imports, and the quotas for it; a quota of 0 means no limit. `passages` are those with
    embeddings."""

    bytes: int
    max_bytes: int
    items: int
    max_items: int
    passages: int
    max_passages: int
    imports: int
    max_imports: int


@operation("GET /api/v1/usage", tools=("server_info",), needs_all_sources=True)
async def get_usage(context: RequestContext, services: "Runtime", _request: NoArguments) -> UsageResponse:
    """Get the usage of the quota

    How many bytes, items and passages with embeddings the user's library has, how many imports are running or waiting,
    and the quotas. Space that deleted items left free does not count. Writes beyond a quota fail with 507; text beyond
    the quota of passages is found by its words only.
    """
    async with services.libraries.library(context) as library:
        usage = await library.usage()
    imports = services.imports.count_active(context)
    return from_record(UsageResponse, usage, imports=imports, max_imports=IMPORT_JOBS_MAX_PER_USER)


class Account(Struct, frozen=True, kw_only=True):
    """The caller. `scopes`, `profile` and `sources` are those of the credential."""

    id: str
    name: str
    role: str
    scopes: Sequence[str]
    kind: str
    profile: str | None
    sources: Sequence[str] | None
    created_at: str


# Every credential may ask what it allows, also one restricted to some tools or sources.
@operation("GET /api/v1/account", tools=("server_info",))
async def get_account(context: RequestContext, services: Services, _request: NoArguments) -> Account:
    """Get your account

    Your name and role, and what your credential allows.
    """
    user = await services.registry.user_by_id(context.user_id)
    if user is None:
        raise NotFound("user", context.user_id)
    principal = context.principal
    return from_record(
        Account,
        user,
        scopes=sorted(principal.scopes),
        kind=principal.kind,
        profile=principal.profile,
        sources=None if principal.sources is None else sorted(principal.sources),
    )


class ConnectionRequest(Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="The id of the connection.")]


class ConnectedApplication(Struct, frozen=True, kw_only=True):
    """An application that was allowed to use the library. `libraries` are the handles of others that it may use,
    too."""

    id: str
    client: str
    client_name: str
    scopes: Sequence[str]
    profile: str | None
    sources: Sequence[str] | None
    libraries: Sequence[str]
    created_at: str
    last_used_at: str | None


class ConnectionList(Struct, frozen=True):
    connections: Sequence[ConnectedApplication]


@account_operation("GET /api/v1/connections")
async def list_connections(context: RequestContext, services: Services, _request: NoArguments) -> ConnectionList:
    """List connected applications

    The applications that you allowed to use your library, and what each of them may do.
    """
    return ConnectionList([_connection(grant) for grant in await services.oauth_grants.list(context.user_id)])


@account_operation("DELETE /api/v1/connections/{id}", caller="recent_sign_in", error_statuses=NOT_FOUND)
async def revoke_connection(
    context: RequestContext, services: Services, request: ConnectionRequest
) -> ConnectedApplication:
    """Disconnect an application

    Ends the access of a connected application, from its next call on. Needs a recent sign-in.
    """
    grant = await services.oauth_grants.revoke(context.user_id, request.id)
    # `client` is who ended the connection, and `target` whose connection it was.
    services.audit.record("connection.revoke", context.user_id, client=context.client_id, target=grant.client_id)
    return _connection(grant)


def _connection(grant: GrantRecord) -> ConnectedApplication:
    return from_record(ConnectedApplication, grant, client=grant.client_id)


# -- browser sessions and passkeys -------------------------------------------------------------------------------------

# In this order: Edge and Opera also name Chrome, and Chrome names Safari.
_BROWSERS = {
    "Edg": "Edge",
    "OPR": "Opera",
    "Firefox": "Firefox",
    "FxiOS": "Firefox",
    "Chrome": "Chrome",
    "CriOS": "Chrome",
    "Safari": "Safari",
}
# The names in a User-Agent header, which only serve to tell one's own browsers apart.
_SYSTEMS = {"Android": "Android", "iPhone": "iPhone", "iPad": "iPad", "Windows": "Windows", "Mac": "Mac"}


class BrowserSessionRequest(Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="The id of the session.")]


class SignedInBrowser(Struct, frozen=True, kw_only=True):
    """A browser in which you are signed in. `is_current` says whether it sent this request."""

    id: str
    browser: str
    address: str
    created_at: str
    last_used_at: str
    is_current: bool


class BrowserList(Struct, frozen=True):
    sessions: Sequence[SignedInBrowser]


class PasskeyRequest(Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="The id of the passkey.")]


class OwnPasskey(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    created_at: str
    last_used_at: str | None


class PasskeyList(Struct, frozen=True):
    passkeys: Sequence[OwnPasskey]


@account_operation("GET /api/v1/browser-sessions")
async def list_browser_sessions(context: RequestContext, services: "Runtime", _request: NoArguments) -> BrowserList:
    """List signed-in browsers

    The browsers in which you are signed in, the most recently used first.
    """
    sessions = await services.browser_sessions.list(context.user_id)
    return BrowserList([_browser(one, context) for one in sessions])


@account_operation("DELETE /api/v1/browser-sessions/{id}", caller="recent_sign_in", error_statuses=NOT_FOUND)
async def end_browser_session(
    context: RequestContext, services: "Runtime", request: BrowserSessionRequest
) -> SignedInBrowser:
    """Sign out in one browser

    Signs you out in one of your browsers, at its next request. Needs a recent sign-in.
    """
    # Only the sessions of the caller are searched, so that an id of another user is unknown.
    found = [one for one in await services.browser_sessions.list(context.user_id) if one.id == request.id]
    if not found:
        raise NotFound("browser session", request.id[:70])
    await services.browser_sessions.revoke(context.user_id, request.id)
    services.audit.record("sign_out", context.user_id, client=context.client_id, detail="another browser")
    return _browser(found[0], context)


@account_operation("DELETE /api/v1/browser-sessions", caller="recent_sign_in")
async def end_browser_sessions(context: RequestContext, services: "Runtime", _request: NoArguments) -> BrowserList:
    """Sign out everywhere

    Signs you out in all browsers, also in this one. API keys and connections stay valid. Needs a recent sign-in.
    """
    # Listed first, because the response says what was ended.
    ended = BrowserList([_browser(one, context) for one in await services.browser_sessions.list(context.user_id)])
    # Also the session that sent this request. Keys and connections of applications stay.
    await services.browser_sessions.revoke_all(context.user_id)
    services.audit.record("sign_out", context.user_id, client=context.client_id, detail="everywhere")
    return ended


@account_operation("GET /api/v1/passkeys")
async def list_passkeys(context: RequestContext, services: "Runtime", _request: NoArguments) -> PasskeyList:
    """List your passkeys

    The passkeys with which you can sign in. A passkey is added on the account page.
    """
    return PasskeyList([from_record(OwnPasskey, one) for one in await _passkeys(services).list(context.user_id)])


@account_operation("DELETE /api/v1/passkeys/{id}", caller="recent_sign_in", error_statuses=NOT_FOUND | {409})
async def remove_passkey(context: RequestContext, services: "Runtime", request: PasskeyRequest) -> OwnPasskey:
    """Remove a passkey

    Removes one of your passkeys: it cannot be used to sign in any more. Needs a recent sign-in.
    """
    passkeys = _passkeys(services)
    found = [one for one in await passkeys.list(context.user_id) if one.id == request.id]
    if not found:
        raise NotFound("passkey", request.id[:70])
    await passkeys.remove(context.user_id, request.id)
    services.audit.record("passkey.remove", context.user_id, client=context.client_id, target=found[0].name)
    return from_record(OwnPasskey, found[0])


def _passkeys(services: "Runtime") -> Passkeys:
    return Passkeys(services.settings, services.registry.database, services.stores.used_tokens)


def browser_name(agent: str) -> str:
    """Returns "Firefox on Windows" for a User-Agent header, or the header if it names no browser."""
    names = [name for token, name in _BROWSERS.items() if re.search(rf"{token}[A-Za-z]{{0,20}}/", agent)]
    # Android also names Linux, so that Linux is tried last.
    systems = [name for token, name in _SYSTEMS.items() if token in agent] or (["Linux"] if "Linux" in agent else [])
    if not names:
        return agent or "Unknown browser"
    return f"{names[0]} on {systems[0]}" if systems else names[0]


def _browser(session: BrowserSession, context: RequestContext) -> SignedInBrowser:
    principal = context.principal
    return from_record(
        SignedInBrowser,
        session,
        browser=browser_name(session.agent),
        last_used_at=format_time_seconds(session.used_at),
        is_current=principal.kind == "browser" and principal.credential_id == session.id,
    )
