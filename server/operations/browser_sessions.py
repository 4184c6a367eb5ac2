"""The caller's browser sessions and passkeys."""

import re
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from auth.accounts.passkeys import Passkey, Passkeys
from auth.browser_sessions import BrowserSession
from auth.context import RequestContext
from config.errors import NotFound
from config.times import format_time_seconds
from server.operations.operation import NOT_FOUND, NoArguments, account_operation
from server.runtime import Runtime

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
async def list_browser_sessions(context: RequestContext, services: Runtime, _request: NoArguments) -> BrowserList:
    """List signed-in browsers

    The browsers in which you are signed in, the most recently used first.
    """
    sessions = await services.browser_sessions.list(context.user_id)
    return BrowserList([_browser(one, context) for one in sessions])


@account_operation("DELETE /api/v1/browser-sessions/{id}", caller="recent_sign_in", error_statuses=NOT_FOUND)
async def end_browser_session(
    context: RequestContext, services: Runtime, request: BrowserSessionRequest
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
async def end_browser_sessions(context: RequestContext, services: Runtime, _request: NoArguments) -> BrowserList:
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
async def list_passkeys(context: RequestContext, services: Runtime, _request: NoArguments) -> PasskeyList:
    """List your passkeys

    The passkeys with which you can sign in. A passkey is added on the account page.
    """
    return PasskeyList([_passkey(one) for one in await _passkeys(services).list(context.user_id)])


@account_operation("DELETE /api/v1/passkeys/{id}", caller="recent_sign_in", error_statuses=NOT_FOUND | {409})
async def remove_passkey(context: RequestContext, services: Runtime, request: PasskeyRequest) -> OwnPasskey:
    """Remove a passkey

    Removes one of your passkeys: it cannot be used to sign in any more. Needs a recent sign-in.
    """
    passkeys = _passkeys(services)
    found = [one for one in await passkeys.list(context.user_id) if one.id == request.id]
    if not found:
        raise NotFound("passkey", request.id[:70])
    await passkeys.remove(context.user_id, request.id)
    services.audit.record("passkey.remove", context.user_id, client=context.client_id, target=found[0].name)
    return _passkey(found[0])


def _passkeys(services: Runtime) -> Passkeys:
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
    return SignedInBrowser(
        id=session.id,
        browser=browser_name(session.agent),
        address=session.address,
        created_at=format_time_seconds(session.created_at),
        last_used_at=format_time_seconds(session.used_at),
        is_current=principal.kind == "browser" and principal.credential_id == session.id,
    )


def _passkey(passkey: Passkey) -> OwnPasskey:
    used_at = passkey.last_used_at
    return OwnPasskey(
        id=passkey.id,
        name=passkey.name,
        created_at=format_time_seconds(passkey.created_at),
        last_used_at=format_time_seconds(used_at) if used_at else None,
    )
