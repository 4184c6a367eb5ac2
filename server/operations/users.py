"""Administration, for the scope `admin`: users, quotas, invitations and password resets.

An administrator cannot lower, disable or delete their own account, so that one always remains.
"""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from auth.accounts.passkeys import remove_all_passkeys
from auth.accounts.service import AccountLinks, Accounts, NewLink, PendingInvitation
from auth.authenticator import local_principal
from auth.context import ROLE_SCOPES, RequestContext, Role, build_context
from auth.control_database import ControlConnection
from auth.library_files import recorded_files
from auth.quotas import QuotaOverrides, describe_limits
from auth.registry import UserRecord, delete_from_copies
from auth.sharing import Group, Sharing
from config.errors import Conflict, NotFound
from config.paths import UserId
from config.times import format_time_seconds
from server.operations.operation import CommandBinding, NoArguments, admin_operation, from_record
from server.services import Services
from sources.storage.sqlite.connection.pool import SqliteLibraries

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
    delete_groups: Annotated[
        bool, Meta(description="Also delete groups that have no other member, with their libraries.")
    ] = False


class QuotasRequest(UserRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replaces all quotas of the user. null means the quota of the settings, 0 no quota."""

    max_bytes: Annotated[_Quota | None, Meta(description="Size of the library.")] = None
    max_items: Annotated[_Quota | None, Meta(description="Number of items.")] = None
    import_max_bytes: Annotated[_Quota | None, Meta(description="Size of an upload; at most the setting.")] = None
    max_passages: Annotated[_Quota | None, Meta(description="Number of passages with embeddings.")] = None


class User(Struct, frozen=True, kw_only=True):
    """`state` is active, disabled or deleted. `subject` and `issuer` identify the user in tokens; an empty issuer means
    the configured one. `bytes` is the size of the library, `max_bytes` its quota; 0 means no quota."""

    name: str
    id: str
    state: str
    role: str
    is_disabled: bool
    is_name_confirmed: bool
    subject: str
    issuer: str
    created_at: str
    disabled_at: str | None
    bytes: int
    max_bytes: int


class UserList(Struct, frozen=True):
    users: Sequence[User]


class UserQuotas(Struct, frozen=True, kw_only=True):
    """The quotas that apply, and those that were set for this user."""

    max_bytes: int
    max_items: int
    import_max_bytes: int
    max_passages: int
    own: QuotaOverrides


@admin_operation("GET /api/v1/users")
async def list_users(_context: RequestContext, services: Services, _request: NoArguments) -> UserList:
    """List users

    All users, with their roles and the sizes of their libraries.
    """
    return UserList(await _users(services, await services.registry.list_users()))


@admin_operation(
    "POST /api/v1/users",
    caller="recent_browser",  # with `issuer` and `subject`, it lets someone in who has a token
    status=201,
    commands=(
        CommandBinding(
            name="user add",
            arguments=("name",),
            help="Add the user NAME.",
            text="Added {name} ({id}). Create an API key with `florilegium key create {name}`.",
            creates=True,
        ),
    ),
)
async def add_user(context: RequestContext, services: Services, request: AddUserRequest) -> User:
    """Add a user

    Adds a user. Create a key for them, or invite them, so that they can sign in.
    """
    record = await services.registry.add_user(request.name, request.issuer, request.subject, request.role)
    _record_change(context, services, "user.add", record, request.role)
    return await _user(services, record)


@admin_operation("GET " + _USER)
async def get_user(_context: RequestContext, services: Services, request: UserRequest) -> User:
    """Get a user

    A user, with the size of the library.
    """
    return await _user(services, await find_user(services, request.name))


@admin_operation(
    "PATCH " + _USER,
    caller="recent_browser",
    commands=(
        CommandBinding(
            name="user role",
            arguments=("name", "role"),
            values={"is_disabled": UNSET, "is_name_confirmed": UNSET},
            text="{name} now has the role {role}.",
            help="Set what NAME may do: read (reader), also write (writer), also manage this server (admin). "
            "Keys and connections that NAME has lose the scopes that the role does not allow.",
        ),
        CommandBinding(
            name="user confirm",
            arguments=("name",),
            values={"role": UNSET, "is_disabled": UNSET, "is_name_confirmed": True},
            text="Confirmed the name {name}.",
            help="Confirm a name that a person chose, so that folders named after NAME are theirs.",
        ),
        CommandBinding(
            name="user disable",
            arguments=("name",),
            values={"role": UNSET, "is_disabled": True, "is_name_confirmed": UNSET},
            text="Disabled {name}. All keys, tokens and sessions are invalid.",
            help="Revoke all access of NAME immediately. Existing keys, tokens and sessions stay invalid.",
        ),
        CommandBinding(
            name="user enable",
            arguments=("name",),
            values={"role": UNSET, "is_disabled": False, "is_name_confirmed": UNSET},
            text="Enabled {name}. A new key or token is needed.",
            help="Enable NAME again. NAME needs a new key or token.",
        ),
    ),
)
async def update_user(context: RequestContext, services: Services, request: UpdateUserRequest) -> User:
    """Change a user

    Sets the role of a user, withdraws and restores access, or confirms the name. Not for your own account.
    """
    record = await find_other_user(context, services, request.name)
    if request.role is not UNSET:
        record = await services.registry.set_role(record.id, request.role)
        _record_change(context, services, "user.role", record, request.role)
    if request.is_disabled is True:
        record = await services.registry.disable_user(record.id)
        _record_change(context, services, "user.disable", record)
    elif request.is_disabled is False:
        record = await services.registry.enable_user(record.id)
        _record_change(context, services, "user.enable", record)
    if request.is_name_confirmed is True:
        record = await services.registry.confirm_name(record.id)
        _record_change(context, services, "user.confirm", record)
    return await _user(services, record)


@admin_operation("DELETE " + _USER)
async def delete_user(context: RequestContext, services: Services, request: DeleteUserRequest) -> User:
    """Delete a user

    Deletes a user and all of their keys, connections and shares; with purge, also the databases. A group whose only
    manager they are passes to the writer, else the reader, who joined first. While they are the only member of a group,
    nothing is deleted, unless `delete_groups` says that the group is deleted, too.
    """
    record = await find_other_user(context, services, request.name)
    # Before it is deleted, because the response has the size of the library.
    deleted = structs.replace(await _user(services, record), state="deleted")
    await remove_user(context, services, record, purge=request.purge, deletes_groups=request.delete_groups)
    _record_change(context, services, "user.delete", record, "purged" if request.purge else "")
    return deleted


# Databases of a user who was deleted without --purge are kept under an id that is in no table any more. In PostgreSQL
# they could otherwise be removed only by hand. Only commands can do it, so that it has no path.
@admin_operation("")
async def purge_kept_library(context: RequestContext, services: Services, request: UserRequest) -> None:
    """Delete the databases of a deleted user"""
    if await services.registry.user_by_id(UserId(request.name)) is not None:
        raise NotFound("deleted user", request.name)
    await remove_library(services, UserId(request.name))
    services.audit.record("user.delete", request.name, client=context.client_id, target=request.name, detail="purged")


@admin_operation("GET " + _USER + "/quotas")
async def get_quotas(_context: RequestContext, services: Services, request: UserRequest) -> UserQuotas:
    """Get quotas

    The quotas of a user or a group.
    """
    record = await _find_owner(services, request.name)
    limits, own = await services.quotas.limits(record.id), await services.quotas.overrides(record.id)
    return UserQuotas(**structs.asdict(limits), own=own)


@admin_operation("PUT " + _USER + "/quotas")
async def set_quotas(context: RequestContext, services: Services, request: QuotasRequest) -> UserQuotas:
    """Set quotas

    Replaces the quotas of a user or a group. They apply from the next call on.
    """
    record = await _find_owner(services, request.name)
    overrides = QuotaOverrides(**{name: getattr(request, name) for name in QuotaOverrides.__struct_fields__})
    await services.quotas.set(record.id, overrides)
    limits = await services.quotas.limits(record.id)
    _record_change(context, services, "quota.set", record, describe_limits(limits))
    return UserQuotas(**structs.asdict(limits), own=overrides)


class AdoptedLibrary(Struct, frozen=True, kw_only=True):
    """The library that a user has taken over."""

    name: str
    former_user: str
    items: int


# The name of the single user may also be that of an account in use. An administrator with a credential must not be able
# to read its library by taking it over.
@admin_operation("POST " + _USER + "/adopt-local", caller="operator")
async def adopt_local(context: RequestContext, services: Services, request: UserRequest) -> AdoptedLibrary:
    """Take over the library of the single user

    Gives a user the library, and the followed sources, of the user who had this server alone before it had accounts.
    The library of the user must be empty. Only the operator can do this, with a command on the machine of the server.
    """
    record = await find_user(services, request.name)
    former = await find_adoptable(services)
    if former is None or former.id == record.id:
        raise Conflict(f"there is no library of {services.settings.single_user_name!r} to take over")
    libraries = services.libraries
    if not isinstance(libraries, SqliteLibraries):
        raise Conflict(
            "libraries in PostgreSQL cannot be taken over; export that of the single user with `florilegium export`, "
            "and import the folder for the other"
        )
    if not services.data_root.is_moved(former.id, record.id):
        await libraries.move(former.id, record.id)

    # An interrupted adoption has moved the files, and continues here. What is recorded of a file keeps a lost one from
    # being replaced by an empty one. Followed sources belong to the library that has what was read of them.
    def move_records(db: ControlConnection) -> None:
        files = db.execute("SELECT files FROM users WHERE id = ?", (former.id,)).fetchone()[0]
        db.execute("UPDATE users SET files = ? WHERE id = ?", (files, record.id))
        db.execute("UPDATE users SET files = '' WHERE id = ?", (former.id,))
        db.execute("UPDATE follows SET user_id = ? WHERE user_id = ?", (record.id, former.id))

    await services.registry.database.write(move_records)
    owner_context = build_context(local_principal(record), services.data_root, "adopt-local", is_agent=False)
    async with services.libraries.library(owner_context) as library:
        items = (await library.usage()).items
    _record_change(context, services, "user.adopt_local", record, former.name)
    return AdoptedLibrary(name=record.name, former_user=former.name, items=items)


async def find_adoptable(services: Services) -> UserRecord | None:
    """Returns the user who had this server alone before it had accounts, if there is a library of that user."""
    user = await services.registry.user_by_name(services.settings.single_user_name)
    if user is None or services.settings.storage_url:
        return user
    files = await asyncio.to_thread(recorded_files, services.data_root.control_path, user.id)
    return user if files else None


async def remove_user(
    context: RequestContext, services: Services, user: UserRecord, *, purge: bool, deletes_groups: bool
) -> None:
    """Deletes the user and all keys, connections and sessions. With `purge`, also the databases; access ends first, so
    that no call writes to the files being deleted. A library that nobody would have is deleted only on request."""
    sharing = Sharing(services.registry.database)
    groups = await require_group_choice(services, user, deletes_groups=deletes_groups)
    for group in groups:
        # As the operator: the person may be disabled, or not manage the group.
        await delete_group_library(context, services, None, group.handle)
    if purge:
        await services.registry.disable_user(user.id)
        await remove_library(services, user.id)
    # Last, so that a deletion that failed halfway can be repeated.
    for name, successor in (await sharing.delete_person(user.id)).items():
        detail = f"{name} manager, after {user.name}"
        services.audit.record("group.role", successor, client=context.principal.user_name, target=name, detail=detail)


async def require_group_choice(services: Services, user: UserRecord, *, deletes_groups: bool) -> Sequence[Group]:
    """Returns the groups whose only member the user is. Raises Conflict if nobody has decided about them."""
    groups = await Sharing(services.registry.database).sole_groups(user.id)
    if groups and not deletes_groups:
        names = ", ".join(one.name for one in groups)
        raise Conflict(
            f"{user.name!r} is the only member of {names}, whose library nobody would have: add a member, or export it "
            "and delete it (delete_groups)"
        )
    return groups


async def delete_group_library(context: RequestContext, services: Services, actor: UserId | None, name: str) -> Group:
    """Deletes a group and its library. Access ends first."""
    sharing = Sharing(services.registry.database)
    group = await sharing.close_group(actor, name)
    await remove_library(services, group.id)
    # Last, so that a deletion that failed halfway can be repeated.
    await sharing.delete_group(group.id)
    services.audit.record(
        "group.delete", actor or "", client=context.principal.user_name, target=group.id, detail=group.name
    )
    return group


async def remove_library(services: Services, user_id: UserId) -> None:
    """Deletes the library, what copies of the control database from before migrations have of the user, and the log of
    reads. Other events of the user stay in the audit log."""
    # A source that is being read would write to the library again.
    await services.forget_user(user_id)
    await services.libraries.remove(user_id)
    if not services.settings.storage_url:
        delete_from_copies(services.data_root.control_path, user_id)
    await services.audit.delete_reads(user_id)


async def find_user(services: Services, name: str) -> UserRecord:
    record = await services.registry.user_by_name(name)
    if record is None:
        raise NotFound("user", name[:60])
    return record


async def _find_owner(services: Services, name: str) -> UserRecord:
    """Returns a user or a group."""
    record = await services.registry.owner_by_name(name)
    if record is None:
        raise NotFound("user", name[:60])
    return record


async def find_other_user(context: RequestContext, services: Services, name: str) -> UserRecord:
    """Returns a user whom the caller may change: not themselves."""
    record = await find_user(services, name)
    if record.id == context.user_id:
        raise Conflict("your own account cannot be changed here; ask another administrator")
    return record


async def _user(services: Services, record: UserRecord) -> User:
    [user] = await _users(services, [record])
    return user


async def _users(services: Services, records: Sequence[UserRecord]) -> list[User]:
    sizes = await services.libraries.stored_bytes([record.id for record in records])
    return [
        from_record(
            User,
            record,
            state="disabled" if record.is_disabled else "active",
            is_name_confirmed=record.named_by == "operator",
            bytes=sizes[record.id],
            max_bytes=(await services.quotas.limits(record.id)).max_bytes,
        )
        for record in records
    ]


def _record_change(
    context: RequestContext, services: Services, action: str, user: UserRecord, detail: str = ""
) -> None:
    """`client` is the administrator."""
    services.audit.record(action, user.id, client=context.principal.user_name, target=user.id, detail=detail)


# -- invitations -------------------------------------------------------------------------------------------------------
# Links that administrators create for people: invitations and password resets.


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


@admin_operation("POST /api/v1/invitations", caller="recent_browser", status=201)
async def invite_user(context: RequestContext, services: Services, request: InviteRequest) -> AccountLinkResponse:
    """Invite a user

    Creates a link with which someone creates an account. It is shown only here.
    """
    links, key_id = AccountLinks(services.registry.database), context.principal.key_id
    link = await links.create_invitation(request.role, request.name, _creator(context), key_id)
    _record(context, services, "user.invite", request.name, request.role)
    return _link(services, link)


@admin_operation("GET /api/v1/invitations")
async def list_invitations(_context: RequestContext, services: Services, _request: NoArguments) -> InvitationList:
    """List invitations

    The pending invitations, without their links.
    """
    # The link itself is not listed: it was shown once, to the administrator who created it.
    names: dict[UserId | None, str] = {user.id: user.name for user in await services.registry.list_users()}
    pending = await AccountLinks(services.registry.database).pending_invitations()
    return InvitationList([_invitation(one, names.get(one.created_by, "")) for one in pending])


@admin_operation("DELETE /api/v1/invitations/{id}")
async def revoke_invitation(context: RequestContext, services: Services, request: InvitationRequest) -> Invitation:
    """Revoke an invitation

    Makes the link of an invitation invalid.
    """
    pending = await AccountLinks(services.registry.database).revoke_invitation(request.id)
    if pending is None:
        raise NotFound("invitation", request.id[:70])
    _record(context, services, "user.invite_revoked", pending.name, pending.role)
    return _invitation(pending, "")


@admin_operation("POST " + _USER + "/password-reset", caller="recent_browser", status=201)
async def reset_password(context: RequestContext, services: Services, request: UserRequest) -> AccountLinkResponse:
    """Reset a password

    Creates a link with which the user sets a new password. It is shown only here.
    """
    record = await find_other_user(context, services, request.name)
    if record.is_disabled:
        raise Conflict(f"user {record.name!r} is disabled; enable the user first")
    # With the key that created it, so that revoking the key can revoke the link, too.
    links = AccountLinks(services.registry.database)
    link = await links.create_reset(record, _creator(context), context.principal.key_id)
    _record_change(context, services, "user.reset_password", record)
    return _link(services, link)


class DemoAccountRequest(UserRequest, frozen=True, kw_only=True):
    expires_at: float


class DemoAccount(Struct, frozen=True, kw_only=True):
    """What a reviewer needs. Password and key are shown only here."""

    name: str
    password: str
    key: str
    expires_at: str


# Only the operator can do this: nobody else should learn the password of an account.
@admin_operation("")
async def add_demo_account(context: RequestContext, services: Services, request: DemoAccountRequest) -> DemoAccount:
    """Add an account that expires, with a password and a key"""
    registry, password = services.registry, secrets.token_urlsafe(15)
    accounts = Accounts(services.settings, registry.database)
    link = await accounts.links.create_invitation("writer", request.name)
    record = await accounts.redeem_link("invitation", link.path.rpartition("/")[2], request.name, password)
    record = await registry.expire_user(record.id, request.expires_at)
    _, key = await registry.create_key(record.id, "demo", ROLE_SCOPES[record.role], request.expires_at)
    expiry = format_time_seconds(request.expires_at)
    _record_change(context, services, "user.add", record, f"demo account until {expiry}")
    return DemoAccount(name=record.name, password=password, key=key, expires_at=expiry)


# Only the operator can do this: with the link alone, nobody signs in where passkeys are required.
@admin_operation("")
async def remove_passkeys(context: RequestContext, services: Services, request: UserRequest) -> int:
    """Remove all passkeys of a user"""
    record = await find_user(services, request.name)
    removed = await remove_all_passkeys(services.registry.database, record.id)
    _record_change(context, services, "passkey.remove", record, f"all {removed}")
    return removed


def _creator(context: RequestContext) -> UserId | None:
    """The operator is no user."""
    return None if context.principal.kind == "operator" else context.user_id


def _record(context: RequestContext, services: Services, action: str, target: str, detail: str) -> None:
    user_id = _creator(context) or ""
    services.audit.record(action, user_id, client=context.client_id, target=target, detail=detail)


def _link(services: Services, link: NewLink) -> AccountLinkResponse:
    return AccountLinkResponse(f"{services.settings.base_url}{link.path}", format_time_seconds(link.expires_at))


def _invitation(pending: PendingInvitation, created_by: str) -> Invitation:
    return from_record(Invitation, pending, created_by=created_by)
