"""Links that administrators create for people: invitations and password resets."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from auth.accounts.links import AccountLinks, NewLink, PendingInvitation
from auth.context import RequestContext
from auth.principal import Role
from auth.registry import UserRecord
from config.errors import Conflict, NotFound
from config.paths import UserId
from config.times import format_time_seconds
from server.rest.account import NoArguments
from server.rest.admin_operation import admin_operation
from server.rest.administration import UserRequest, find_other_user
from server.rest.operation import Operation
from server.runtime import Runtime

_PATH = "/api/v1/invitations"


class InviteRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    role: Annotated[Role, Meta(description="What the new user may do.")] = "writer"
    name: Annotated[str, Meta(description="The name of the new user. Default: the user chooses one.")] = ""


class InvitationRequest(Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="The id of the invitation.")]


class AccountLinkResponse(Struct, frozen=True):
    """A link that can be used once."""

    url: str
    expires_at: str


class Invitation(Struct, frozen=True, kw_only=True):
    """A pending invitation. `name` is empty if the new user may choose one, and `created_by` if
    the operator created it on the command line."""

    id: str
    name: str
    role: str
    created_by: str
    created_at: str
    expires_at: str


class InvitationList(Struct, frozen=True):
    invitations: Sequence[Invitation]


class InvitationEndpoints:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._links = AccountLinks(runtime.registry.database, runtime.settings)

    async def invite(self, context: RequestContext, request: InviteRequest) -> AccountLinkResponse:
        link = await self._links.create_invitation(
            request.role, request.name, context.user_id, context.principal.key_id
        )
        self._record(context, "user.invite", request.name, request.role)
        return self._link(link)

    async def list_invitations(self, context: RequestContext, _request: NoArguments) -> InvitationList:
        names: dict[UserId | None, str] = {user.id: user.name for user in await self._runtime.registry.list_users()}
        pending = await self._links.pending_invitations()
        return InvitationList([_invitation(one, names.get(one.created_by, "")) for one in pending])

    async def revoke_invitation(self, context: RequestContext, request: InvitationRequest) -> Invitation:
        pending = await self._links.revoke_invitation(request.id)
        if pending is None:
            raise NotFound("invitation", request.id[:70])
        self._record(context, "user.invite_revoked", pending.name, pending.role)
        return _invitation(pending, "")

    async def reset_password(self, context: RequestContext, request: UserRequest) -> AccountLinkResponse:
        record: UserRecord = await find_other_user(self._runtime.registry, context, request.name)
        if record.is_disabled:
            raise Conflict(f"user {record.name!r} is disabled; enable the user first")
        link = await self._links.create_reset(record, context.user_id, context.principal.key_id)
        client = context.principal.user_name
        self._runtime.audit.record("user.reset_password", record.id, client=client, target=record.id)
        return self._link(link)

    def _record(self, context: RequestContext, action: str, target: str, detail: str) -> None:
        self._runtime.audit.record(action, context.user_id, client=context.client_id, target=target, detail=detail)

    def _link(self, link: NewLink) -> AccountLinkResponse:
        base_url = self._runtime.settings.base_url
        return AccountLinkResponse(f"{base_url}{link.path}", format_time_seconds(link.expires_at))


def _invitation(pending: PendingInvitation, created_by: str) -> Invitation:
    return Invitation(
        id=pending.id,
        name=pending.name,
        role=pending.role,
        created_by=created_by,
        created_at=format_time_seconds(pending.created_at),
        expires_at=format_time_seconds(pending.expires_at),
    )


def invitation_operations(runtime: Runtime) -> list[Operation]:
    endpoints = InvitationEndpoints(runtime)
    return [
        admin_operation(
            "invite_user",
            "POST",
            _PATH,
            "Invite a user",
            "Creates a link with which someone creates an account. It is shown only here.",
            request=InviteRequest,
            response=AccountLinkResponse,
            handler=endpoints.invite,
            caller="recent_browser",
            status=201,
        ),
        admin_operation(
            "list_invitations",
            "GET",
            _PATH,
            "List invitations",
            "The pending invitations, without their links.",
            request=NoArguments,
            response=InvitationList,
            handler=endpoints.list_invitations,
        ),
        admin_operation(
            "revoke_invitation",
            "DELETE",
            _PATH + "/{id}",
            "Revoke an invitation",
            "Makes the link of an invitation invalid.",
            request=InvitationRequest,
            response=Invitation,
            handler=endpoints.revoke_invitation,
        ),
        admin_operation(
            "reset_password",
            "POST",
            "/api/v1/users/{name}/password-reset",
            "Reset a password",
            "Creates a link with which the user sets a new password. It is shown only here.",
            request=UserRequest,
            response=AccountLinkResponse,
            handler=endpoints.reset_password,
            caller="recent_browser",
            status=201,
        ),
    ]
