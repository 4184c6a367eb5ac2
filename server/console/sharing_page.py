"""The sharing page: groups and their members, invitations, and what people share of their own libraries."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar
from urllib.parse import quote

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from auth.context import ADMIN
from auth.sharing import Sharing
from config.errors import FlorilegiumError, NotFound
from server.console.browser import see_other
from server.console.page_handler import PersonalPage, Viewer
from server.console.pages import N_
from server.operations import sharing
from server.operations.operation import NoArguments, Operation, SignInNeeded
from server.protocol.schema import read_arguments
from sources.library_source import LibrarySource

SHARING_PATH = "/sharing"
JOIN_PATH = "/join/{secret}"


class _Action(Struct, frozen=True):
    """A form of the page: the operation, its fields that the form has, and the word for what was done. `stays` says
    whether the page of the group is shown afterwards."""

    operation: Operation
    fields: tuple[str, ...]
    done: str
    stays: bool = True


# By the last part of the address that the form is sent to.
ACTIONS: Mapping[str, _Action] = {
    "create": _Action(sharing.create_group, ("name",), "created"),
    "rename": _Action(sharing.rename_group, ("name", "new_name"), "renamed"),
    "delete": _Action(sharing.delete_group, ("name",), "deleted", stays=False),
    "leave": _Action(sharing.leave_group, ("name",), "left", stays=False),
    "invite": _Action(sharing.invite_member, ("name", "role", "person"), "invited"),
    "uninvite": _Action(sharing.revoke_group_invitation, ("name", "id"), "uninvited"),
    "role": _Action(sharing.set_member_role, ("name", "person", "role"), "changed"),
    "remove": _Action(sharing.remove_member, ("name", "person"), "removed"),
    "accept": _Action(sharing.accept_invitation, ("invitation",), "joined"),
    "decline": _Action(sharing.decline_invitation, ("invitation",), "declined", stays=False),
    "share": _Action(sharing.create_share, ("by", "value", "to"), "shared", stays=False),
    "end": _Action(sharing.delete_share, ("id",), "ended", stays=False),
}


class SharingPages(PersonalPage):
    done_sentences: ClassVar = {
        "created": N_("The group is created. Invite people now."),
        "renamed": N_("The group is renamed."),
        "deleted": N_("The group and its library are deleted."),
        "left": N_("You have left the group."),
        "invited": N_("The person is invited, and sees the invitation on this page."),
        "uninvited": N_("The invitation is not valid any more."),
        "changed": N_("The role is changed. It counts from the next call on."),
        "removed": N_("The member is removed, and has no access from the next call on."),
        "joined": N_("You are a member of the group. Its library is searched with yours."),
        "declined": N_("The invitation is declined."),
        "shared": N_("It is shared now."),
        "ended": N_("It is not shared any more."),
    }

    async def show(self, request: Request) -> Response:
        viewer = await self.admit(request, sharing.list_groups)
        return await self._page(viewer, request.query_params.get("group", "")[:200])

    async def join(self, request: Request) -> Response:
        """Asks whether to join the group of a link. Opening it changes nothing: mail scanners do that, too."""
        viewer = await self.admit(request, sharing.accept_invitation)
        secret = request.path_params["secret"]
        invitation = await Sharing(self._runtime.registry.database).find_link(secret)
        return await self.render(viewer, "join.html", invitation=invitation, secret=secret, section="sharing")

    def act(self, name: str) -> Callable[[Request], Any]:
        """Returns the function that runs the form of an action."""
        action = ACTIONS[name]

        async def run(request: Request) -> Response:
            viewer, values = await self.admit_form(request, action.operation)
            group = values.get("name", "")
            given = {field: text for field in action.fields if (text := values.get(field, "").strip())}
            try:
                result = await self.run(viewer, action.operation, read_arguments(given, action.operation.input))
            except (SignInNeeded, NotFound):  # they have pages of their own
                raise
            except FlorilegiumError as error:
                return await self._page(viewer, group, values, error=error)
            if isinstance(result, sharing.NewGroupInvitation) and result.link:
                # The link is shown in the response to the form, and never again.
                return await self._page(viewer, group, link=result.link, status=201)
            if isinstance(result, sharing.GroupEntry) and action.stays:
                group = result.name  # a new one
            target = f"&group={quote(group, safe='')}" if group and action.stays else ""
            return see_other(f"{SHARING_PATH}?done={action.done}{target}")

        return run

    async def _page(self, viewer: Viewer, name: str, form: Mapping[str, str] | None = None, **shown: Any) -> Response:
        groups: sharing.GroupList = await self.run(viewer, sharing.list_groups, NoArguments())
        incoming = await self.run(viewer, sharing.list_incoming_invitations, NoArguments())
        shares: sharing.ShareList = await self.run(viewer, sharing.list_shares, NoArguments())
        group = next((one for one in groups.groups if name in (one.name, one.handle)), None)
        members: Any = ()
        invitations: Any = ()
        if group is not None:
            asked = sharing.GroupRequest(name=group.handle)
            members = (await self.run(viewer, sharing.list_members, asked)).members
            if group.role == "manager":
                invitations = (await self.run(viewer, sharing.list_group_invitations, asked)).invitations
        own_name = viewer.context.principal.user_name
        allowed = self.settings.groups
        return await self.render(
            viewer,
            "sharing.html",
            **{
                "error": None,
                "link": "",
                **shown,
            },
            # Of the form that failed, or else of a link to this page.
            values={
                field: (form or viewer.request.query_params).get(field, "")[:300]
                for field in ("name", "by", "value", "to")
            },
            groups=groups.groups,
            group=group,
            members=members,
            invitations=invitations,
            incoming=incoming.invitations,
            given=[one for one in shares.shares if one.owner == own_name],
            received=[one for one in shares.shares if one.owner != own_name],
            sources=[one.name for one in self._runtime.knowledge.sources if isinstance(one, LibrarySource)],
            own_name=own_name,
            may_create=allowed == "everyone" or (allowed == "admins" and viewer.context.principal.has_scope(ADMIN)),
            section="sharing",
        )
