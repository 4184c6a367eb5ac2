"""Libraries of groups and what people share of their own. `auth.sharing` decides who may do what.

As for keys, nothing that an agent may hold can change who has access, and in a browser giving access needs a recent
sign-in. Ending it does not.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from msgspec import Meta, Struct, structs

from auth.authenticator import OPERATOR_ID
from auth.context import ADMIN, ROLE_SCOPES, WRITE, RequestContext, ShareRule, build_context
from auth.sharing import INVITATION_USES_MAX, Member, RoleNeeded, RuleKind, Share, Sharing
from config.errors import FlorilegiumError, Forbidden, InvalidParams, NotFound
from config.openid import GroupRole, read_group_map
from config.paths import UserId
from server.operations.operation import (
    CommandBinding,
    NoArguments,
    ToolBinding,
    account_operation,
    from_record,
    operation,
)
from server.operations.users import delete_group_library, find_user
from server.services import Services

_GROUP = "/api/v1/groups/{name}"
# The operator has no scope but `admin`.
_operation = partial(account_operation, other_scopes=(ADMIN,), error_statuses=frozenset((404, 409)))
_Command = partial(CommandBinding, is_account=True)


class GroupsRestricted(FlorilegiumError, status=403):
    """The setting `groups` does not let the caller create one."""

    def __init__(self) -> None:
        super().__init__("you may not create groups on this server; ask an administrator")


# -- libraries ---------------------------------------------------------------------------------------------------------


class LibraryEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A library that the caller may use. `role` is owner, manager, writer or reader. `shares_by` and `shares_value` say
    what a person shares: the items with a tag, those of a source, or the conversations of a namespace."""

    name: str
    role: str
    handle: str | None = None
    shares_by: str | None = None
    shares_value: str | None = None


class LibraryEntries(Struct, frozen=True):
    libraries: Sequence[LibraryEntry]


class LibrariesRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Has no parameters."""


@operation(
    "GET /api/v1/libraries",
    tool=ToolBinding(
        name="libraries_list",
        title="List libraries",
        description=(
            "List the libraries that you can search: the user's own one first, then those of groups and what others "
            "share. Filter a search by name with library:NAME. Example: {}"
        ),
    ),
)
async def list_libraries(context: RequestContext, _services: Services, _request: LibrariesRequest) -> LibraryEntries:
    """List libraries

    Your own library, those of your groups, and what others share with you, as far as the credential may use them.
    """
    own = LibraryEntry(name="own", role="owner")
    others = [
        from_record(
            LibraryEntry,
            one,
            shares_by=one.rule.by if one.rule else None,
            shares_value=one.rule.value if one.rule else None,
        )
        for one in context.principal.libraries
    ]
    return LibraryEntries([own, *others])


async def managed_library(context: RequestContext, services: Services, name: str | None) -> RequestContext:
    """Returns the context of the caller, or one in which the group whose library is named is the caller, without the
    rights of an administrator: for what only its managers do with a library as a whole."""
    if name is None:
        return context
    handles = context.principal.library_handles([name])
    access = next((one for one in context.principal.libraries if one.handle in handles and one.rule is None), None)
    if access is None:
        raise NotFound("library", name[:60])
    if access.role != "manager":
        raise RoleNeeded
    group = await services.registry.user_by_id(access.owner_id)
    if group is None:  # deleted meanwhile
        raise NotFound("library", name[:60])
    principal = structs.replace(
        context.principal,
        user_id=group.id,
        user_name=group.name,
        epoch=group.epoch,
        scopes=context.scopes & ROLE_SCOPES["writer"],
        libraries=(),
    )
    return build_context(
        principal, services.data_root, context.request_id, is_agent=context.is_agent, read_log=context.read_log
    )


# -- groups ------------------------------------------------------------------------------------------------------------


class GroupRequest(Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="The name or the handle of the group.")]


class CreateGroupRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(description="The name of the group, which no user and no other group has.")]
    manager: Annotated[str, Meta(description="The first manager. Only the operator can name another person.")] = ""


class RenameGroupRequest(GroupRequest, frozen=True, kw_only=True):
    new_name: Annotated[str, Meta(description="The new name.")]


class MemberRequest(GroupRequest, frozen=True, kw_only=True):
    person: Annotated[str, Meta(description="The name of the member.")]


class MemberRoleRequest(MemberRequest, frozen=True, kw_only=True):
    role: Annotated[GroupRole, Meta(description="What the member may do.")]


class GroupEntry(Struct, frozen=True, kw_only=True):
    """A group. `role` is your own."""

    name: str
    handle: str
    role: str
    members: int
    created_at: str


class GroupList(Struct, frozen=True):
    groups: Sequence[GroupEntry]


class MemberEntry(Struct, frozen=True, kw_only=True):
    """`by_issuer` says that the identity provider decides about the membership."""

    name: str
    role: str
    added_at: str
    by_issuer: bool
    is_disabled: bool


class GroupMembers(Struct, frozen=True):
    members: Sequence[MemberEntry]


@_operation("GET /api/v1/groups", commands=(_Command(name="group list"),))
async def list_groups(context: RequestContext, services: Services, _request: NoArguments) -> GroupList:
    """List your groups

    The groups whose member you are.
    """
    groups = await _sharing(services).list_groups(_actor(context))
    return GroupList([from_record(GroupEntry, one) for one in groups if context.principal.permits_library(one.handle)])


@_operation(
    "POST /api/v1/groups",
    caller="unrestricted",
    scope=WRITE,
    status=201,
    commands=(
        _Command(name="group create", arguments=("name",), text="Created the group {name}. Its handle is {handle}."),
    ),
)
async def create_group(context: RequestContext, services: Services, request: CreateGroupRequest) -> GroupEntry:
    """Create a group

    Creates a group with an empty library, and makes you its manager. The setting `groups` says who may.
    """
    actor = _actor(context)
    allowed = services.settings.groups
    if context.principal.kind != "operator" and (
        allowed == "off" or (allowed == "admins" and not context.principal.has_scope(ADMIN))
    ):
        raise GroupsRestricted
    _require_unmapped(context, services, request.name)
    if actor is None and not request.manager:
        raise InvalidParams("manager: expected the name of a user, got nothing; --manager names the first manager")
    if actor is not None and request.manager not in ("", context.principal.user_name):
        raise InvalidParams("manager: only the operator can create a group for others; invite them instead")
    manager = actor or (await find_user(services, request.manager)).id
    group = await _sharing(services).create_group(manager, request.name)
    _record(context, services, "group.create", group.id, group.name)
    return from_record(GroupEntry, group)


@_operation(
    "PATCH " + _GROUP,
    caller="unrestricted",
    scope=WRITE,
    commands=(_Command(name="group rename", arguments=("name", "new_name"), text="The group is now called {name}."),),
)
async def rename_group(context: RequestContext, services: Services, request: RenameGroupRequest) -> GroupEntry:
    """Rename a group

    Gives a group another name. The addresses of its items stay the same. Only for managers.
    """
    if request.new_name.lower() != request.name.lower():
        _require_unmapped(context, services, request.new_name)
    group = await _sharing(services).rename_group(_actor(context), request.name, request.new_name)
    _record(context, services, "group.rename", group.id, group.name)
    return from_record(GroupEntry, group)


@_operation(
    "DELETE " + _GROUP,
    caller="recent_sign_in",
    scope=WRITE,
    commands=(
        _Command(
            name="group delete",
            arguments=("name",),
            text="Deleted the group {name} and its library.",
            question="Delete the group {name} and its whole library?",
        ),
    ),
)
async def delete_group(context: RequestContext, services: Services, request: GroupRequest) -> GroupEntry:
    """Delete a group

    Deletes a group and its whole library. This cannot be undone; backups keep what they contain. Only for managers;
    needs a recent sign-in.
    """
    return from_record(GroupEntry, await delete_group_library(context, services, _actor(context), request.name))


@_operation(
    "GET " + _GROUP + "/members",
    commands=(_Command(name="group members", arguments=("name",)),),
)
async def list_members(context: RequestContext, services: Services, request: GroupRequest) -> GroupMembers:
    """List the members of a group

    The members of a group that you are in, those who joined first in front.
    """
    await _require_permitted(context, services, request.name)
    return GroupMembers([_member(one) for one in await _sharing(services).list_members(_actor(context), request.name)])


@_operation(
    "PUT " + _GROUP + "/members/{person}",
    caller="recent_browser",
    scope=WRITE,
    commands=(_Command(name="group role", arguments=("name", "person", "role"), text="{name} is now a {role}."),),
)
async def set_member_role(context: RequestContext, services: Services, request: MemberRoleRequest) -> MemberEntry:
    """Set the role of a member

    Makes a member a reader, writer or manager. Readers search and read; writers also add, change and delete items;
    managers also decide who is in the group. Only for managers. In a browser, it needs a recent sign-in.
    """
    member = await _sharing(services).set_role(_actor(context), request.name, request.person, request.role)
    _record_member(context, services, "group.role", request.name, member)
    return _member(member)


# The person is not asked, so that only the operator can, and it has no path.
@_operation(
    "", caller="operator", commands=(_Command(name="group add", arguments=("name", "person"), text="Added {name}."),)
)
async def add_member(context: RequestContext, services: Services, request: MemberRoleRequest) -> MemberEntry:
    """Add a member

    Adds a person to a group without an invitation. Only the operator can do this.
    """
    member = await _sharing(services).add_member(request.name, request.person, request.role)
    _record_member(context, services, "group.join", request.name, member)
    return _member(member)


@_operation(
    "DELETE " + _GROUP + "/members/{person}",
    caller="unrestricted",
    commands=(_Command(name="group remove", arguments=("name", "person"), text="Removed {name}."),),
)
async def remove_member(context: RequestContext, services: Services, request: MemberRequest) -> MemberEntry:
    """Remove a member

    Ends a membership from the next call on: a manager removes anyone, others leave. What the person shared with the
    group is no longer shared; what they added stays.
    """
    member = await _sharing(services).remove_member(_actor(context), request.name, request.person)
    is_own = member.user_id == context.user_id
    _record_member(context, services, "group.leave" if is_own else "group.remove", request.name, member)
    return _member(member)


@_operation(
    "POST " + _GROUP + "/leave",
    caller="unrestricted",
    commands=(_Command(name="group leave", arguments=("name",), text="{name} is no longer a member."),),
)
async def leave_group(context: RequestContext, services: Services, request: GroupRequest) -> MemberEntry:
    """Leave a group

    Ends your membership. The last manager cannot leave.
    """
    as_member = MemberRequest(name=request.name, person=context.principal.user_name)
    left: MemberEntry = await remove_member.handler(context, services, as_member)
    return left


# -- invitations -------------------------------------------------------------------------------------------------------


class InviteMemberRequest(GroupRequest, frozen=True, kw_only=True):
    role: Annotated[GroupRole, Meta(description="What the new member may do.")] = "reader"
    person: Annotated[str, Meta(description="The person, who must accept. Default: a link for anyone.")] = ""
    uses: Annotated[int, Meta(ge=1, le=INVITATION_USES_MAX, description="How many people can use the link.")] = 1


class GroupInvitationRequest(GroupRequest, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="The id of the invitation.")]


class AnswerRequest(Struct, frozen=True, kw_only=True):
    invitation: Annotated[str, Meta(description="The id of an invitation to you, or the link.")]


class GroupInvitationEntry(Struct, frozen=True, kw_only=True):
    """An invitation that can be used. `person` is who is invited, or empty for a link."""

    id: str
    group: str
    role: str
    person: str
    uses_left: int
    created_by: str
    created_at: str
    expires_at: str


class NewGroupInvitation(GroupInvitationEntry, frozen=True, kw_only=True):
    """`link` is shown only here. It is empty if the invitation names a person."""

    link: str


class GroupInvitationList(Struct, frozen=True):
    invitations: Sequence[GroupInvitationEntry]


@_operation(
    "POST " + _GROUP + "/invitations",
    caller="recent_browser",
    scope=WRITE,
    status=201,
    commands=(_Command(name="group invite", arguments=("name",)),),
)
async def invite_member(
    context: RequestContext, services: Services, request: InviteMemberRequest
) -> NewGroupInvitation:
    """Invite to a group

    Invites a person by name, who must accept, or creates a link, which is shown only here. Only for managers. In a
    browser, it needs a recent sign-in.
    """
    invitation, secret = await _sharing(services).invite(
        _actor(context), request.name, request.role, request.person, request.uses, context.principal.key_id
    )
    _record(context, services, "group.invite", invitation.id, f"{invitation.group} {invitation.person} {request.role}")
    link = f"{services.settings.base_url}/join/{secret}" if secret else ""
    return from_record(NewGroupInvitation, invitation, link=link)


@_operation(
    "GET " + _GROUP + "/invitations",
    commands=(_Command(name="group invitations", arguments=("name",)),),
)
async def list_group_invitations(
    context: RequestContext, services: Services, request: GroupRequest
) -> GroupInvitationList:
    """List the invitations of a group

    The invitations that can still be used, without their links. Only for managers.
    """
    await _require_permitted(context, services, request.name)
    pending = await _sharing(services).list_invitations(_actor(context), request.name)
    return GroupInvitationList([from_record(GroupInvitationEntry, one) for one in pending])


@_operation(
    "DELETE " + _GROUP + "/invitations/{id}",
    caller="unrestricted",
    scope=WRITE,
    commands=(_Command(name="group uninvite", arguments=("name", "id")),),
)
async def revoke_group_invitation(
    context: RequestContext, services: Services, request: GroupInvitationRequest
) -> GroupInvitationList:
    """Revoke an invitation to a group

    Makes an invitation invalid, and returns those that remain. Only for managers.
    """
    await _sharing(services).revoke_invitation(_actor(context), request.name, request.id)
    _record(context, services, "group.invite_revoked", request.id, request.name)
    remaining: GroupInvitationList = await list_group_invitations.handler(
        context, services, GroupRequest(name=request.name)
    )
    return remaining


@_operation("GET /api/v1/group-invitations", commands=(_Command(name="group incoming"),))
async def list_incoming_invitations(
    context: RequestContext, services: Services, _request: NoArguments
) -> GroupInvitationList:
    """List invitations to you

    The invitations to groups that wait for your answer.
    """
    # A credential restricted to some libraries cannot include groups that the person has not joined yet.
    is_restricted = context.principal.library_limit is not None
    pending = () if is_restricted else await _sharing(services).incoming_invitations(context.user_id)
    return GroupInvitationList([from_record(GroupInvitationEntry, one) for one in pending])


@_operation(
    "POST /api/v1/group-invitations/accept",
    caller="unrestricted",
    commands=(_Command(name="group accept", arguments=("invitation",), text="Joined {name} as {role}."),),
)
async def accept_invitation(context: RequestContext, services: Services, request: AnswerRequest) -> GroupEntry:
    """Accept an invitation

    Makes you a member of a group, by an invitation that names you or by a link.
    """
    # People paste the whole link.
    group = await _sharing(services).accept(context.user_id, request.invitation.rpartition("/")[2])
    _record(context, services, "group.join", group.id, f"{group.name} {group.role}")
    return from_record(GroupEntry, group)


@_operation(
    "POST /api/v1/group-invitations/decline",
    caller="unrestricted",
    commands=(_Command(name="group decline", arguments=("invitation",), text="Declined to join {group}."),),
)
async def decline_invitation(
    context: RequestContext, services: Services, request: AnswerRequest
) -> GroupInvitationEntry:
    """Decline an invitation

    Deletes an invitation that names you. A link stays valid for others.
    """
    declined = await _sharing(services).decline(context.user_id, request.invitation.rpartition("/")[2])
    _record(context, services, "group.decline", declined.id, declined.group)
    return from_record(GroupInvitationEntry, declined)


# -- shares ------------------------------------------------------------------------------------------------------------


class CreateShareRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    by: Annotated[RuleKind, Meta(description="What the rule is about.")]
    value: Annotated[str, Meta(description="The tag, the source, or the namespace of conversations.")]
    to: Annotated[str, Meta(description="A person, or a group that you are in.")]
    name: Annotated[str, Meta(description="What the others see. Default: the value.")] = ""


class ShareRequest(Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="The id of the share, which is also its handle.")]


class ShareEntry(Struct, frozen=True, kw_only=True):
    """What `owner` shares with the person or group `to`."""

    id: str
    owner: str
    to: str
    to_group: bool
    by: str
    value: str
    name: str
    created_at: str


class ShareList(Struct, frozen=True):
    shares: Sequence[ShareEntry]


@_operation("GET /api/v1/shares", commands=(_Command(name="share list"),))
async def list_shares(context: RequestContext, services: Services, _request: NoArguments) -> ShareList:
    """List shares

    What you share, and what is shared with you and your groups.
    """
    principal, shares = context.principal, await _sharing(services).list_shares(_actor(context))
    visible = [one for one in shares if one.owner == principal.user_name or principal.permits_library(one.id)]
    return ShareList([_share(one) for one in visible])


@_operation(
    "POST /api/v1/shares",
    caller="recent_browser",
    scope=WRITE,
    status=201,
    commands=(_Command(name="share create", arguments=("by", "value", "to"), text="Shared {value} with {to} ({id})."),),
)
async def create_share(context: RequestContext, services: Services, request: CreateShareRequest) -> ShareEntry:
    """Share a part of your library

    Lets a person or the members of a group read your items with a tag, those of a source, or the conversations of a
    namespace. What you add later under the same rule is shared, too. Human-only messages never are. Nobody can share
    it on. In a browser, it needs a recent sign-in.
    """
    actor = _actor(context)
    if actor is None:
        raise InvalidParams("--user: expected the owner of the library, got nothing")
    if request.by == "source":
        from sources.registry import SOURCES  # noqa: PLC0415 - most commands do not need the sources

        # Those of other distributions get no library but that of the caller, so that nothing of them can be shared.
        known = [name for name in SOURCES if name not in services.settings.sources_off]
        if request.value not in known:
            raise InvalidParams(f"value: expected one of {', '.join(known)}, got {request.value[:40]!r}")
    rule = ShareRule(request.by, request.value)
    share = await _sharing(services).create_share(actor, rule, request.to, request.name, context.principal.key_id)
    _record(context, services, "share.create", share.id, f"{request.by} {request.value} to {share.to}")
    return _share(share)


@_operation(
    "DELETE /api/v1/shares/{id}",
    caller="unrestricted",
    commands=(_Command(name="share delete", arguments=("id",), text="{value} is no longer shared with {to}."),),
)
async def delete_share(context: RequestContext, services: Services, request: ShareRequest) -> ShareEntry:
    """End a share

    Ends a share from the next call on: one of your own, or one that you receive and do not want. What is shared with a
    group, its managers can end.
    """
    share = await _sharing(services).delete_share(_actor(context), request.id)
    _record(context, services, "share.delete", share.id, f"{share.rule.by} {share.rule.value} to {share.to}")
    return _share(share)


def _require_unmapped(context: RequestContext, services: Services, name: str) -> None:
    """Refuses a group name from the settings that map an identity provider's groups. The people in those would become
    members of this group."""
    settings, principal = services.settings, context.principal
    maps = (settings.jwt_group_map, *(provider.group_map for provider in settings.openid_providers))
    mapped = {group.lower() for entries in maps for group, _ in read_group_map(entries).values()}
    if name.lower() in mapped and not (principal.kind == "operator" or principal.has_scope(ADMIN)):
        raise Forbidden(ADMIN)


def _sharing(services: Services) -> Sharing:
    return Sharing(services.registry.database)


async def _require_permitted(context: RequestContext, services: Services, name: str) -> None:
    """Raises the error of an absent group for one whose library the credential may not use."""
    if context.principal.library_limit is not None:
        group = await _sharing(services).get_group(_actor(context), name)
        if not context.principal.permits_library(group.handle):
            raise NotFound("group", name[:60])


def _actor(context: RequestContext) -> UserId | None:
    """The operator is nobody, and may do everything."""
    return None if context.user_id == OPERATOR_ID else context.user_id


def _record(context: RequestContext, services: Services, action: str, target: str, detail: str) -> None:
    services.audit.record(action, _actor(context) or "", client=context.client_id, target=target, detail=detail)


def _record_member(context: RequestContext, services: Services, action: str, group: str, member: Member) -> None:
    """The event is that of the member; `client` says who did it."""
    detail = f"{group} {member.role}"
    services.audit.record(
        action, member.user_id, client=context.principal.user_name, target=member.user_id, detail=detail
    )


def _member(member: Member) -> MemberEntry:
    return from_record(MemberEntry, member, by_issuer=member.issuer is not None)


def _share(share: Share) -> ShareEntry:
    return from_record(ShareEntry, share, by=share.rule.by, value=share.rule.value)
