"""The connect page: how to set up each client, API keys, connected applications, a test, and what clients did."""

import time
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from auth.context import ADMIN, READ, SCOPES, WRITE
from config.errors import FlorilegiumError, StorageError
from config.loading import CLIENT_TOKEN_VARIABLE
from config.times import format_time_seconds
from server.client_guides import CLIENTS, ConnectionTarget
from server.console.browser import see_other
from server.console.page_handler import PersonalPage, Viewer
from server.console.pages import N_, PageForm, _
from server.doctor.replay import FLOWS
from server.operations import account, keys
from server.operations.audit import CallList, CallsRequest, ReadPage, ReadsRequest, list_calls, list_reads
from server.operations.connection_test import ConnectionReport, ConnectionTestRequest, test_connection
from server.operations.operation import NoArguments, SignInNeeded
from server.profiles import PROFILE_NAMES

CONNECT_PATH = "/connect"
_DAY_S = 86_400
_ACTIVITY_LIMIT = 20
_EXPIRIES = {
    "": N_("Never"),
    "7": N_("In 7 days"),
    "30": N_("In 30 days"),
    "90": N_("In 90 days"),
    "365": N_("In a year"),
}
# A form offers only those that the person has.
_RIGHTS = {
    "write": (N_("Search, read and write"), (READ, WRITE)),
    "read": (N_("Search and read"), (READ,)),
    "admin": (N_("Manage this server too"), SCOPES),
}


class ConnectForm(PageForm, frozen=True, kw_only=True):
    path: ClassVar[str] = CONNECT_PATH
    field_max_chars: ClassVar[int] = 40

    client: str = ""  # the one that was chosen
    auth: str = ""  # `sign-in` or `key`


class ConnectPages(PersonalPage):
    done_sentences: ClassVar = {
        "key-revoked": N_("The key is revoked. It is refused from its next call on."),
        "disconnected": N_("The application is disconnected. It is refused from its next call on."),
    }

    async def show(self, request: Request) -> Response:
        viewer = await self.admit(request, keys.list_keys)
        return await self._page(viewer, ConnectForm.of(request))

    async def create_key(self, request: Request) -> Response:
        """Shows the key in the response to the form, and never again."""
        viewer, values = await self.admit_form(request, keys.create_key)
        form = ConnectForm(client=values.get("client", "")[:40], auth="key")
        chosen = tuple(name for name in self._sources if values.get(f"source_{name}") == "on")
        days = values.get("expires", "")
        expires_at = time.time() + int(days) * _DAY_S if days in _EXPIRIES and days else None
        new = keys.CreateKeyRequest(
            name=values.get("name", "").strip(),
            scopes=_RIGHTS.get(values.get("rights", ""), _RIGHTS["read"])[1],
            profile=values.get("profile") or None,
            # All and none both mean no restriction.
            sources=None if len(chosen) in (0, len(self._sources)) else chosen,
            expires_at=None if expires_at is None else format_time_seconds(expires_at),
        )
        try:
            key: keys.NewKey = await self.run(viewer, keys.create_key, new)
        except SignInNeeded:  # it has a page of its own, with a link to sign in
            raise
        except FlorilegiumError as error:
            return await self._page(viewer, form, error=error, values=values)
        return await self._page(viewer, form, new_key=key, status=201)

    async def revoke_key(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, keys.revoke_key)
        request_of_form = keys.RevokeKeyRequest(id=values.get("key", ""), created=values.get("created") == "on")
        revoked: keys.RevokedKey = await self.run(viewer, keys.revoke_key, request_of_form)
        if revoked.created and not request_of_form.created:
            # Asks whether the keys that were created with this one are revoked, too.
            return await self._page(viewer, ConnectForm(), revoked=revoked)
        return see_other(f"{CONNECT_PATH}?done=key-revoked#keys")

    async def disconnect(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, account.revoke_connection)
        connection = account.ConnectionRequest(id=values.get("connection", ""))
        await self.run(viewer, account.revoke_connection, connection)
        return see_other(f"{CONNECT_PATH}?done=disconnected#applications")

    async def test(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, test_connection)
        client = values.get("client", "any")
        form = ConnectForm(client=client[:40], auth=values.get("auth", "")[:40])
        try:
            report: ConnectionReport = await self.run(
                viewer, test_connection, ConnectionTestRequest(client=client or "any")
            )
        except FlorilegiumError as error:
            return await self._page(viewer, form, error=error)
        return await self._page(viewer, form, report=report)

    async def _page(
        self, viewer: Viewer, form: ConnectForm, new_key: keys.NewKey | None = None, **shown: Any
    ) -> Response:
        """`shown` is what the form has done, or the values to enter again after an error."""
        with suppress(StorageError):  # so that the last use of each key is that of this moment
            await self._runtime.authenticator.flush()
        listed: keys.KeyList = await self.run(viewer, keys.list_keys, NoArguments())
        connections: account.ConnectionList = await self.run(viewer, account.list_connections, NoArguments())
        calls: CallList = await self.run(viewer, list_calls, CallsRequest(limit=_ACTIVITY_LIMIT))
        reads: ReadPage = await self.run(viewer, list_reads, ReadsRequest(limit=_ACTIVITY_LIMIT, titles=True))
        own_scopes = viewer.context.scopes
        return await self.render(
            viewer,
            "connect.html",
            section="connect",
            url=self._runtime.settings.resource_url,
            is_local=not self._runtime.settings.is_auth_configured,
            form=form,
            clients={name: guide(ConnectionTarget("")).title for name, guide in CLIENTS.items()},
            setup=self._setup(form, new_key),
            new_key=new_key,
            keys=[key for key in listed.keys if key.state == "active"],
            old_keys=[key for key in listed.keys if key.state != "active"],
            rights={name: words for name, (words, scopes) in _RIGHTS.items() if own_scopes.issuperset(scopes)},
            rights_of=rights_text,
            profiles=PROFILE_NAMES,
            sources=self._sources.items(),
            expiries=_EXPIRIES,
            connections=connections.connections,
            calls=calls.calls,
            reads=reads.reads,
            **{"values": {}, "revoked": None, "report": None, **shown},
        )

    def _setup(self, form: ConnectForm, new_key: keys.NewKey | None) -> dict[str, Any]:
        """Returns the instructions for the chosen client."""
        settings = self._runtime.settings
        client = form.client if form.client in CLIENTS else next(iter(CLIENTS))
        flow, is_open = FLOWS[client], not settings.is_auth_configured
        can_sign_in = flow.has_oauth and bool(settings.has_oauth_server or settings.authorization_servers)
        uses_key = not is_open and flow.accepts_keys and (form.auth == "key" or not can_sign_in)
        target = ConnectionTarget(
            settings.resource_url,
            # A key that was just created is shown in the instructions; otherwise they name a variable for it.
            token_env=CLIENT_TOKEN_VARIABLE if uses_key and new_key is None else "",
            key=new_key.secret if uses_key and new_key is not None else "",
        )
        return {
            "client": client,
            "guide": CLIENTS[client](target),
            # Empty if the server needs no credential.
            "auth": "" if is_open else "key" if uses_key else "sign-in",
            "can_sign_in": can_sign_in,
            "accepts_keys": flow.accepts_keys,
            # It runs on its provider's servers, which need an https address.
            "is_unreachable": flow.is_hosted and urlsplit(settings.resource_url).scheme != "https",
        }


def rights_text(scopes: "tuple[str, ...] | list[str]") -> str:
    """Returns what scopes allow, in words."""
    if ADMIN in scopes:
        return _("manage this server")
    if WRITE in scopes:
        return _("search, read and write") if READ in scopes else _("write")
    return _("search and read")
