"""The pages for administrators: the state of the server, users and invitations, and the audit log."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from auth.context import ROLE_SCOPES
from auth.quotas import QuotaOverrides
from config.errors import FlorilegiumError, InvalidParams
from server.console.browser import see_other
from server.console.charts import COLUMNS_MAX, ChartRow, column_chart
from server.console.page_handler import PersonalPage, Viewer
from server.console.pages import N_, PageForm, _
from server.http_services import HttpServices
from server.operations import users
from server.operations.audit import AuditPage, AuditRequest, list_audit_events
from server.operations.operation import NoArguments
from server.operations.status import HourStatus, ServerStatus, status_operation
from server.runtime import Runtime

USERS_PATH = "/admin/users"
_AUDIT_LIMIT = 100
# Hours and users on the page about usage. REST has all of them.
_HOURS_SHOWN = 48
_USERS_SHOWN = 20
# No event has a number with more digits.
_NUMBER_MAX_DIGITS = 16
# What people can be given, with the words that the page has for it.
_ROLES = {
    "reader": N_("can search and read"),
    "writer": N_("can also write"),
    "admin": N_("can also manage this server"),
}
# A new role must get words here.
assert _ROLES.keys() == ROLE_SCOPES.keys()


class AuditForm(PageForm, frozen=True, kw_only=True):
    """The filters in the address of the audit log. `offset` is the number of the last event of the previous page."""

    path: ClassVar[str] = "/admin/audit"
    field_max_chars: ClassVar[int] = 200

    user: str = ""
    action: str = ""
    since: str = ""
    reads: str = ""

    def request(self) -> AuditRequest:
        before = int(self.offset) if self.offset.isdecimal() and len(self.offset) <= _NUMBER_MAX_DIGITS else None
        return AuditRequest(
            user=self.user or None,
            action=self.action or None,
            reads=bool(self.reads),
            since=self.since or None,
            limit=_AUDIT_LIMIT,
            before=before,
        )


class AdminPages(PersonalPage):
    done_sentences: ClassVar = {
        "role": N_("The role is changed."),
        "disabled": N_("The user is disabled and signed out everywhere. All keys are revoked."),
        "enabled": N_("The user is enabled. New keys and sign-ins work again."),
        "quotas": N_("The quotas are changed."),
        "deleted": N_("The user is deleted."),
        "revoked": N_("The invitation is not valid any more."),
    }

    def __init__(self, runtime: Runtime, services: HttpServices) -> None:
        super().__init__(runtime, services.browser)
        self._status = status_operation(services.metrics)

    async def overview(self, request: Request) -> Response:
        viewer = await self.admit(request, self._status)
        status: ServerStatus = await self.run(viewer, self._status, NoArguments())
        return await self.render(viewer, "admin.html", state=status, section="admin", tab="overview")

    async def usage(self, request: Request) -> Response:
        """What this server did in the last hours, and how many users and how much data it has."""
        viewer = await self.admit(request, self._status)
        status: ServerStatus = await self.run(viewer, self._status, NoArguments())
        listed: users.UserList = await self.run(viewer, users.list_users, NoArguments())
        hours = status.hours[-_HOURS_SHOWN:]
        charts = [
            (_("Searches"), "", {_("answered"): _answered, _("failed or refused"): lambda hour: hour.failed_searches}),
            (_("MCP calls"), "", {_("succeeded"): _succeeded, _("failed"): lambda hour: hour.failed_calls}),
            (_("95 %% of MCP calls took at most"), " ms", {_("milliseconds"): lambda hour: hour.call_ms_p95 or 0}),
            (_("Server errors (HTTP 5xx)"), "", {_("errors"): lambda hour: hour.server_errors}),
        ]
        growth: dict[str, int] = {}
        for number, user in enumerate(sorted(listed.users, key=lambda one: one.created_at), 1):
            growth[user.created_at[: len("2026-01")]] = number
        largest = sorted(listed.users, key=lambda one: -one.bytes)
        return await self.render(
            viewer,
            "admin-usage.html",
            hours=hours,
            charts=[
                (title, unit, column_chart([_hour_row(hour, unit, series) for hour in hours], list(series)))
                for title, unit, series in charts
            ],
            growth=growth,
            growth_chart=column_chart(
                [
                    ChartRow(label=month, text=f"{month}: {count:,}", values={_("users"): count})
                    for month, count in list(growth.items())[-COLUMNS_MAX:]
                ],
                [_("users")],
            ),
            largest=largest[:_USERS_SHOWN],
            others=largest[_USERS_SHOWN:],
            most_bytes=max([1, *(user.bytes for user in largest)]),
            workers=len(status.workers),
            user_path=_user_path,
            section="admin",
            tab="usage",
        )

    async def users(self, request: Request) -> Response:
        return await self._users_page(await self.admit(request, users.list_users))

    async def invite(self, request: Request) -> Response:
        """Shows the link in the response to the form, and never again."""
        viewer, values = await self.admit_form(request, users.invite_user)
        try:
            invitation = users.InviteRequest(role=_role(values), name=values.get("name", "").strip())
            link: users.AccountLinkResponse = await self.run(viewer, users.invite_user, invitation)
        except FlorilegiumError as error:
            return await self._users_page(viewer, error=error)
        return await self._users_page(viewer, link=link)

    async def revoke_invitation(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, users.revoke_invitation)
        await self.run(viewer, users.revoke_invitation, users.InvitationRequest(id=values.get("invitation", "")))
        return see_other(f"{USERS_PATH}?done=revoked")

    async def add_user(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, users.add_user)
        try:
            new = users.AddUserRequest(name=values.get("name", "").strip(), role=_role(values))
            user: users.User = await self.run(viewer, users.add_user, new)
        except FlorilegiumError as error:
            return await self._users_page(viewer, error=error)
        return see_other(_user_path(user.name))

    async def user(self, request: Request) -> Response:
        return await self._user_page(await self.admit(request, users.get_user))

    async def change_user(self, request: Request) -> Response:
        """Runs the action that the button of the form names, which is also the word for what was done."""
        viewer, values = await self.admit_form(request, users.update_user)
        name, action = request.path_params["name"], values.get("action", "")
        run = self.run
        try:
            match action:
                case "role":
                    await run(viewer, users.update_user, users.UpdateUserRequest(name=name, role=_role(values)))
                case "disabled" | "enabled":
                    is_disabled = action == "disabled"
                    await run(viewer, users.update_user, users.UpdateUserRequest(name=name, is_disabled=is_disabled))
                case "quotas":
                    # An empty field means the quota of the settings.
                    quotas: dict[str, int | None] = {}
                    for field in QuotaOverrides.__struct_fields__:
                        text = values.get(field, "").strip().replace(",", "")
                        if text and (not text.isdecimal() or len(text) >= _NUMBER_MAX_DIGITS):
                            expected = "a whole number, or nothing for the setting"
                            raise InvalidParams(f"{field}: expected {expected}, got {text[:40]!r}")
                        quotas[field] = int(text) if text else None
                    await run(viewer, users.set_quotas, users.QuotasRequest(name=name, **quotas))
                case "deleted":
                    if values.get("confirmation", "").strip() != name:
                        raise InvalidParams(f"name: type {name} to confirm")
                    purge, with_groups = values.get("purge") == "yes", values.get("delete_groups") == "yes"
                    deletion = users.DeleteUserRequest(name=name, purge=purge, delete_groups=with_groups)
                    await run(viewer, users.delete_user, deletion)
                case "reset":
                    # The link is shown in the response to the form, and never again.
                    link: users.AccountLinkResponse = await run(
                        viewer, users.reset_password, users.UserRequest(name=name)
                    )
                    return await self._user_page(viewer, link=link)
                case _:
                    raise InvalidParams(f"action: expected an action of the page, got {action[:40]!r}")
        except FlorilegiumError as error:
            if error.status == 404:  # there is no page to show the error on
                raise
            return await self._user_page(viewer, error=error)
        return see_other(f"{USERS_PATH if action == 'deleted' else _user_path(name)}?done={action}")

    async def audit(self, request: Request) -> Response:
        form = AuditForm.of(request)
        viewer = await self.admit(request, self._status)
        page, error = AuditPage((), None), None
        try:
            page = await self.run(viewer, list_audit_events, form.request())
        except FlorilegiumError as problem:
            error = problem
        return await self.render(
            viewer,
            "admin-audit.html",
            error=error or "",
            form=form,
            events=page.events,
            **form.paging(page.next_before),
            section="admin",
            tab="audit",
        )

    async def _users_page(self, viewer: Viewer, **values: Any) -> Response:
        listed: users.UserList = await self.run(viewer, users.list_users, NoArguments())
        pending: users.InvitationList = await self.run(viewer, users.list_invitations, NoArguments())
        return await self.render(
            viewer,
            "admin-users.html",
            users=listed.users,
            invitations=pending.invitations,
            has_invitations=self._runtime.settings.is_auth_configured and self._runtime.settings.password_sign_in,
            roles=_ROLES,
            user_path=_user_path,
            section="admin",
            tab="users",
            **{"link": None, **values},
        )

    async def _user_page(self, viewer: Viewer, **values: Any) -> Response:
        named = users.UserRequest(name=viewer.request.path_params["name"])
        user: users.User = await self.run(viewer, users.get_user, named)
        quotas: users.UserQuotas = await self.run(viewer, users.get_quotas, named)
        return await self.render(
            viewer,
            "admin-user.html",
            user=user,
            quotas=quotas,
            is_own=user.id == viewer.context.user_id,
            has_passwords=self._runtime.settings.password_sign_in,
            roles=_ROLES,
            action=_user_path(user.name),
            audit_address=AuditForm(user=user.name).address(),
            section="admin",
            tab="users",
            **{"link": None, **values},
        )


def _answered(hour: HourStatus) -> float:
    return hour.searches - hour.failed_searches


def _succeeded(hour: HourStatus) -> float:
    return hour.calls - hour.failed_calls


def _hour_row(hour: HourStatus, unit: str, series: Mapping[str, Callable[[HourStatus], float]]) -> ChartRow:
    values = {name: value(hour) for name, value in series.items()}
    clock = hour.time[len("2026-01-01T") : len("2026-01-01T00:00")]
    parts = ", ".join(f"{value:,.10g}{unit or f' {name}'}" for name, value in values.items())
    return ChartRow(label=hour.time, short_label=clock, text=f"{hour.time[:10]} {clock} UTC: {parts}", values=values)


def _user_path(name: str) -> str:
    return f"{USERS_PATH}/{quote(name, safe='')}"


def _role(values: Mapping[str, str]) -> Any:
    role = values.get("role", "writer")
    if role not in _ROLES:
        raise InvalidParams(f"role: expected one of {', '.join(_ROLES)}, got {role[:40]!r}")
    return role
