"""The caller's browser sessions and passkeys over REST."""

import re
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from auth.accounts.passkeys import Passkey, Passkeys
from auth.browser_sessions import BrowserSession
from auth.context import RequestContext
from config.errors import NotFound
from config.times import format_time_seconds
from server.rest.account import NoArguments
from server.rest.audit import account_operation
from server.rest.operation import Operation
from server.runtime import Runtime

_NOT_FOUND = frozenset((404,))
_SESSIONS = "/api/v1/browser-sessions"
_PASSKEYS = "/api/v1/passkeys"
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


class BrowserSessionEndpoints:
    def __init__(self, runtime: Runtime, passkeys: Passkeys) -> None:
        self._sessions = runtime.browser_sessions
        self._passkeys = passkeys
        self._audit = runtime.audit

    async def list_sessions(self, context: RequestContext, _request: NoArguments) -> BrowserList:
        return BrowserList([_browser(one, context) for one in await self._sessions.list(context.user_id)])

    async def end_session(self, context: RequestContext, request: BrowserSessionRequest) -> SignedInBrowser:
        # Only the sessions of the caller are searched, so that an id of another user is unknown.
        found = [one for one in await self._sessions.list(context.user_id) if one.id == request.id]
        if not found:
            raise NotFound("browser session", request.id[:70])
        await self._sessions.revoke(context.user_id, request.id)
        self._audit.record("sign_out", context.user_id, client=context.client_id, detail="another browser")
        return _browser(found[0], context)

    async def end_sessions(self, context: RequestContext, _request: NoArguments) -> BrowserList:
        # Listed first, because the response says what was ended.
        ended = await self.list_sessions(context, _request)
        # Also the session that sent this request. Keys and connections of applications stay.
        await self._sessions.revoke_all(context.user_id)
        self._audit.record("sign_out", context.user_id, client=context.client_id, detail="everywhere")
        return ended

    async def list_passkeys(self, context: RequestContext, _request: NoArguments) -> PasskeyList:
        return PasskeyList([_passkey(one) for one in await self._passkeys.list(context.user_id)])

    async def remove_passkey(self, context: RequestContext, request: PasskeyRequest) -> OwnPasskey:
        found = [one for one in await self._passkeys.list(context.user_id) if one.id == request.id]
        if not found:
            raise NotFound("passkey", request.id[:70])
        await self._passkeys.remove(context.user_id, request.id)
        self._audit.record("passkey.remove", context.user_id, client=context.client_id, target=found[0].name)
        return _passkey(found[0])


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


def browser_session_operations(runtime: Runtime, passkeys: Passkeys) -> list[Operation]:
    endpoints = BrowserSessionEndpoints(runtime, passkeys)
    return [
        account_operation(
            id="list_browser_sessions",
            method="GET",
            path=_SESSIONS,
            summary="List signed-in browsers",
            description="The browsers in which you are signed in, the most recently used first.",
            handler=endpoints.list_sessions,
        ),
        account_operation(
            id="end_browser_session",
            method="DELETE",
            path=_SESSIONS + "/{id}",
            summary="Sign out in one browser",
            description="Signs you out in one of your browsers, at its next request. Needs a recent sign-in.",
            handler=endpoints.end_session,
            caller="recent_sign_in",
            error_statuses=_NOT_FOUND,
        ),
        account_operation(
            id="end_browser_sessions",
            method="DELETE",
            path=_SESSIONS,
            summary="Sign out everywhere",
            description="Signs you out in all browsers, also in this one. API keys and connections stay valid. "
            "Needs a recent sign-in.",
            handler=endpoints.end_sessions,
            caller="recent_sign_in",
        ),
        account_operation(
            id="list_passkeys",
            method="GET",
            path=_PASSKEYS,
            summary="List your passkeys",
            description="The passkeys with which you can sign in. A passkey is added on the account page.",
            handler=endpoints.list_passkeys,
        ),
        account_operation(
            id="remove_passkey",
            method="DELETE",
            path=_PASSKEYS + "/{id}",
            summary="Remove a passkey",
            description="Removes one of your passkeys: it cannot be used to sign in any more. Needs a recent sign-in.",
            handler=endpoints.remove_passkey,
            caller="recent_sign_in",
            error_statuses=_NOT_FOUND | {409},
        ),
    ]
