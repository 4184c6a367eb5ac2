"""Administration over REST, for the scope `admin`: users and quotas."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from auth.accounts.service import AccountLinks, NewLink, PendingInvitation
from auth.context import ADMIN, RequestContext, Role
from auth.quotas import QuotaOverrides, describe_limits
from auth.registry import Registry, UserRecord, delete_from_copies
from config.errors import Conflict, NotFound
from config.paths import UserId
from config.times import format_time_seconds
from server.rest.account import NoArguments
from server.rest.audit import ACCOUNT_TOOLS
from server.rest.operation import Caller, Method, Operation
from server.runtime import Runtime

# -- admin operation ---------------------------------------------------------------------------------------------------
# Declares an operation that needs the scope `admin`. Connected applications and restricted keys can only read.

_ERRORS = frozenset((404, 409))


def admin_operation(
    operation_id: str,
    method: Method,
    path: str,
    summary: str,
    description: str,
    *,
    handler: Callable[[RequestContext, Any], Awaitable[Any]],
    status: int = 200,
    caller: Caller | None = None,
) -> Operation:
    return Operation(
        id=operation_id,
        method=method,
        path=path,
        summary=summary,
        description=description,
        handler=handler,
        # Nothing that an agent may hold can change an account: neither a connected application nor a restricted key.
        caller=caller or ("any" if method == "GET" else "unrestricted"),
        tools=ACCOUNT_TOOLS,
        scope=ADMIN,
        needs_all_sources=True,
        status=status,
        error_statuses=_ERRORS,
    )


# -- user deletion -----------------------------------------------------------------------------------------------------
# Deletes a user, with or without the library.


async def delete_user(runtime: Runtime, user: UserRecord, *, purge: bool) -> None:
    """Deletes the user and all keys, connections and sessions. With `purge`, also the databases; access ends first, so
    that no call writes to the files being deleted."""
    if purge:
        await runtime.registry.disable_user(user.id)
        # A source that is being read would write to the library again.
        await runtime.following.forget(user.id)
        await runtime.libraries.remove(user.id)
        if not runtime.settings.storage_url:
            delete_from_copies(runtime.data_root.control_path, user.id)
        await runtime.audit.delete_reads(user.id)
        await runtime.recent_calls.forget(user.id)
    # Last, so that a deletion that failed halfway can be repeated.
    await runtime.registry.delete_user(user.id)


_USERS = "/api/v1/users"
_USER = "/api/v1/users/{name}"
# JSON clients read larger numbers inexactly (RFC 8259 section 6).
_Quota = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class UserRequest(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="The name of the user.")]


class AddUserRequest(UserRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    role: Annotated[Role, Meta(description="What the user may do.")] = "writer"
    subject: Annotated[str, Meta(description="The user claim in the user's tokens. Default: the name.")] = ""
    issuer: Annotated[str, Meta(description="The iss of the user's tokens. Default: the configured issuer.")] = ""


class UpdateUserRequest(UserRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    role: Annotated[Role | UnsetType, Meta(description="What the user may do.")] = UNSET
    is_disabled: Annotated[bool | UnsetType, Meta(description="true withdraws all access at once.")] = UNSET
    is_name_confirmed: Annotated[
        Literal[True] | UnsetType,
        Meta(description="true confirms a name that the person chose, so that folders named after it are theirs."),
    ] = UNSET


class DeleteUserRequest(UserRequest, frozen=True, kw_only=True):
    purge: Annotated[bool, Meta(description="Delete the databases too. This cannot be undone.")] = False


class QuotasRequest(UserRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replaces all quotas of the user. null means the quota of the settings, 0 no quota."""

    max_bytes: Annotated[_Quota | None, Meta(description="Size of the library.")] = None
    max_items: Annotated[_Quota | None, Meta(description="Number of items.")] = None
    import_max_bytes: Annotated[_Quota | None, Meta(description="Size of an upload; at most the setting.")] = None
    max_passages: Annotated[_Quota | None, Meta(description="Number of passages with embeddings.")] = None


class User(Struct, frozen=True, kw_only=True):
    name: str
    id: str
    role: str
    is_disabled: bool
    is_name_confirmed: bool
    created_at: str
    bytes: int


class UserList(Struct, frozen=True):
    users: Sequence[User]


class UserQuotas(Struct, frozen=True, kw_only=True):
    """The quotas that apply, and those that were set for this user."""

    max_bytes: int
    max_items: int
    import_max_bytes: int
    max_passages: int
    own: QuotaOverrides


class AdministrationEndpoints:
    """The handlers. An administrator cannot lower, disable or delete their own account, so that one always remains."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._registry = runtime.registry
        self._quotas = runtime.quotas

    async def list_users(self, context: RequestContext, _request: NoArguments) -> UserList:
        return UserList(await self._users(await self._registry.list_users()))

    async def get_user(self, context: RequestContext, request: UserRequest) -> User:
        return await self._user(await find_user(self._registry, request.name))

    async def add_user(self, context: RequestContext, request: AddUserRequest) -> User:
        record = await self._registry.add_user(request.name, request.issuer, request.subject, request.role)
        self._record(context, "user.add", record, request.role)
        return await self._user(record)

    async def update_user(self, context: RequestContext, request: UpdateUserRequest) -> User:
        record = await find_other_user(self._registry, context, request.name)
        if request.role is not UNSET:
            record = await self._registry.set_role(record.id, request.role)
            self._record(context, "user.role", record, request.role)
        if request.is_disabled is True:
            record = await self._registry.disable_user(record.id)
            self._record(context, "user.disable", record)
        elif request.is_disabled is False:
            record = await self._registry.enable_user(record.id)
            self._record(context, "user.enable", record)
        if request.is_name_confirmed is True:
            record = await self._registry.confirm_name(record.id)
            self._record(context, "user.confirm", record)
        return await self._user(record)

    async def delete_user(self, context: RequestContext, request: DeleteUserRequest) -> User:
        record = await find_other_user(self._registry, context, request.name)
        deleted = await self._user(record)  # before it is deleted, because the response has the size of the library
        await delete_user(self._runtime, record, purge=request.purge)
        self._record(context, "user.delete", record, "purged" if request.purge else "")
        return deleted

    async def get_quotas(self, context: RequestContext, request: UserRequest) -> UserQuotas:
        return await self._user_quotas(await find_user(self._registry, request.name))

    async def set_quotas(self, context: RequestContext, request: QuotasRequest) -> UserQuotas:
        record = await find_user(self._registry, request.name)
        overrides = QuotaOverrides(**{name: getattr(request, name) for name in QuotaOverrides.__struct_fields__})
        await self._quotas.set(record.id, overrides)
        quotas = await self._user_quotas(record)
        self._record(context, "quota.set", record, describe_limits(await self._quotas.limits(record.id)))
        return quotas

    async def _user_quotas(self, record: UserRecord) -> UserQuotas:
        limits, own = await self._quotas.limits(record.id), await self._quotas.overrides(record.id)
        return UserQuotas(**asdict(limits), own=own)

    async def _user(self, record: UserRecord) -> User:
        [user] = await self._users([record])
        return user

    async def _users(self, records: Sequence[UserRecord]) -> list[User]:
        sizes = await self._runtime.libraries.stored_bytes([record.id for record in records])
        return [
            User(
                name=record.name,
                id=record.id,
                role=record.role,
                is_disabled=record.is_disabled,
                is_name_confirmed=record.named_by == "operator",
                created_at=format_time_seconds(record.created_at),
                bytes=sizes[record.id],
            )
            for record in records
        ]

    def _record(self, context: RequestContext, action: str, user: UserRecord, detail: str = "") -> None:
        """`client` is the administrator."""
        self._runtime.audit.record(action, user.id, client=context.principal.user_name, target=user.id, detail=detail)


async def find_user(registry: Registry, name: str) -> UserRecord:
    record = await registry.user_by_name(name)
    if record is None:
        raise NotFound("user", name[:60])
    return record


async def find_other_user(registry: Registry, context: RequestContext, name: str) -> UserRecord:
    """Returns a user whom the caller may change: not themselves."""
    record = await find_user(registry, name)
    if record.id == context.user_id:
        raise Conflict("your own account cannot be changed here; ask another administrator")
    return record


def administration_operations(runtime: Runtime) -> list[Operation]:
    endpoints = AdministrationEndpoints(runtime)
    return [
        admin_operation(
            "list_users",
            "GET",
            _USERS,
            "List users",
            "All users, with their roles and the sizes of their libraries.",
            handler=endpoints.list_users,
        ),
        admin_operation(
            "add_user",
            "POST",
            _USERS,
            "Add a user",
            "Adds a user. Create a key for them, or invite them, so that they can sign in.",
            handler=endpoints.add_user,
            status=201,
        ),
        admin_operation(
            "get_user", "GET", _USER, "Get a user", "A user, with the size of the library.", handler=endpoints.get_user
        ),
        admin_operation(
            "update_user",
            "PATCH",
            _USER,
            "Change a user",
            "Sets the role of a user, withdraws and restores access, or confirms the name. Not for your own account.",
            handler=endpoints.update_user,
            caller="recent_browser",
        ),
        admin_operation(
            "delete_user",
            "DELETE",
            _USER,
            "Delete a user",
            "Deletes a user and all of their keys and connections; with purge, also the databases.",
            handler=endpoints.delete_user,
        ),
        admin_operation(
            "get_quotas", "GET", _USER + "/quotas", "Get quotas", "The quotas of a user.", handler=endpoints.get_quotas
        ),
        admin_operation(
            "set_quotas",
            "PUT",
            _USER + "/quotas",
            "Set quotas",
            "Replaces the quotas of a user. They apply from the next call on.",
            handler=endpoints.set_quotas,
        ),
    ]


# -- invitations -------------------------------------------------------------------------------------------------------
# Links that administrators create for people: invitations and password resets.

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
        self._links = AccountLinks(runtime.registry.database)

    async def invite(self, context: RequestContext, request: InviteRequest) -> AccountLinkResponse:
        link = await self._links.create_invitation(
            request.role, request.name, context.user_id, context.principal.key_id
        )
        self._record(context, "user.invite", request.name, request.role)
        return self._link(link)

    async def list_invitations(self, context: RequestContext, _request: NoArguments) -> InvitationList:
        # The link itself is not listed: it was shown once, to the administrator who created it.
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
        # With the key that created it, so that revoking the key can revoke the link, too.
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
            handler=endpoints.list_invitations,
        ),
        admin_operation(
            "revoke_invitation",
            "DELETE",
            _PATH + "/{id}",
            "Revoke an invitation",
            "Makes the link of an invitation invalid.",
            handler=endpoints.revoke_invitation,
        ),
        admin_operation(
            "reset_password",
            "POST",
            "/api/v1/users/{name}/password-reset",
            "Reset a password",
            "Creates a link with which the user sets a new password. It is shown only here.",
            handler=endpoints.reset_password,
            caller="recent_browser",
            status=201,
        ),
    ]
