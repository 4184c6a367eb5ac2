"""Groups, their members and invitations, and what people share of their own libraries.

A group is a row of `users` that owns a library and has no credential. Who may do what is decided here, in the
transaction that does it: `actor` is the person who asks, or None for the operator. A group exists only for its members,
and for those who are invited. Nothing can be shared on: a share is always of the library of its owner, and a group's
library is reached by membership alone.
"""

import base64
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from msgspec import Struct, structs

from auth import registry
from auth.audit import Audit
from auth.context import LibraryAccess, ShareRule
from auth.control_database import ControlConnection, ControlDatabase, control_operation
from config.errors import Conflict, FlorilegiumError, InvalidParams, NotFound
from config.openid import GroupRole
from config.paths import UserId

ROLES: tuple[GroupRole, ...] = get_args(GroupRole)
RuleKind = Literal["tag", "source", "namespace"]

# No issuer of tokens has this name, and the subject of a group is its handle: no credential can name one.
_ISSUER = "group:"
_LINK = "flog_"
# `library:own` is the caller's own library, and `-` none of others.
_RESERVED = frozenset(("own", "-"))

# Every library is searched on its own, so a person can have only some.
GROUPS_MAX = 50
MEMBERS_MAX = 1_000
SHARES_MAX = 100
SHARES_RECEIVED_MAX = 50
# From one person to the same recipient. Recipients are not asked first, so one sender must not fill their list.
SHARES_BETWEEN_MAX = 10
# Of one group, and for one person, who would otherwise be flooded with them.
INVITATIONS_MAX = 100
INVITATION_USES_MAX = 100
INVITATION_TTL_S = 7 * 86_400.0
# Handles are part of URIs, which models read.
_HANDLE_CHARS = 10
_HANDLE = re.compile(rf"[gs]_[a-z2-7]{{{_HANDLE_CHARS}}}")


class RoleNeeded(FlorilegiumError, status=403):
    """The member of a group lacks the role for it."""

    def __init__(self) -> None:
        super().__init__("only a manager of the group can do this")


class InvitationNotValid(FlorilegiumError, status=404):
    """An invitation that does not exist, was used, has expired, or whose group or sender no longer permits it. Which of
    these is not said."""

    def __init__(self) -> None:
        super().__init__("the invitation is not valid; ask for another")


class Group(Struct, frozen=True, kw_only=True):
    """`role` is that of the person who asks; the operator counts as a manager."""

    id: UserId
    handle: str
    name: str
    role: GroupRole
    members: int
    created_at: float


class Member(Struct, frozen=True, kw_only=True):
    """`issuer` is the identity provider whose claims say so, if it is one."""

    user_id: UserId
    name: str
    role: GroupRole
    added_at: float
    issuer: str | None
    is_disabled: bool


class GroupInvitation(Struct, frozen=True, kw_only=True):
    """`person` is who is invited, or empty for a link, which `uses_left` people can use."""

    id: str
    group: str
    role: GroupRole
    person: str
    uses_left: int
    created_by: str
    created_at: float
    expires_at: float


class Share(Struct, frozen=True, kw_only=True):
    """What `owner` shares with the person or group `to`."""

    id: str
    owner: str
    to: str
    to_group: bool
    rule: ShareRule
    name: str
    created_at: float


class ClaimedMembership(Struct, frozen=True):
    """A membership that claims have added or changed, or have ended, in which case it has no role. `successor` is who
    manages the group instead, if it was its last manager."""

    group_id: UserId
    group: str
    role: GroupRole | None
    successor: UserId | None = None


def record_claims(audit: Audit | None, user_id: UserId, issuer: str, changes: Sequence[ClaimedMembership]) -> None:
    for one in changes:
        action = "group.remove" if one.role is None else "group.join"
        detail = f"{one.group} {one.role or ''}".strip()
        if audit is not None:
            audit.record(action, user_id, client=issuer, target=one.group_id, detail=detail)
            if one.successor is not None:
                detail = f"{one.group} manager, because the last manager lost the role"
                audit.record("group.role", one.successor, client=issuer, target=one.group_id, detail=detail)


def narrow(libraries: tuple[LibraryAccess, ...], limit: frozenset[str] | None) -> tuple[LibraryAccess, ...]:
    """Returns the libraries that a credential may use that is restricted to these handles."""
    return libraries if limit is None else tuple(one for one in libraries if one.handle in limit)


# In one statement: it is read for every sign-in, and on PostgreSQL each statement waits for the server.
_LIBRARIES = """
    WITH person AS (
        SELECT id FROM users
        WHERE id = ?1 AND kind = 'person' AND disabled_at IS NULL AND (expires_at IS NULL OR expires_at > ?2)
    )
    SELECT 0, lower(g.name), g.name, g.subject, g.id, '', m.role, '', '', NULL
    FROM person p JOIN group_members m ON m.user_id = p.id JOIN users g ON g.id = m.group_id
    WHERE g.disabled_at IS NULL
    UNION ALL
    SELECT 1, lower(o.name), s.name, s.id, o.id, o.name, '', s.rule_by, s.rule_value, o.expires_at
    FROM person p JOIN shares s ON s.owner_id <> p.id JOIN users o ON o.id = s.owner_id JOIN users t ON t.id = s.to_id
    WHERE o.disabled_at IS NULL AND (o.expires_at IS NULL OR o.expires_at > ?2) AND t.disabled_at IS NULL
        AND s.to_id IN (SELECT group_id FROM group_members WHERE user_id = ?1 UNION ALL SELECT ?1)
    ORDER BY 1, 2, 3, 4
"""


class Sharing:
    def __init__(self, database: ControlDatabase, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    @control_operation("read")
    def libraries_of(self, db: ControlConnection, user_id: UserId) -> tuple[LibraryAccess, ...]:
        """Returns the libraries of others that a person may use: those of their groups, then what is shared with them
        or with their groups. Someone who is disabled has none, and shares nothing."""
        return tuple(
            # The slash keeps what is shared apart from groups, whose names have none.
            LibraryAccess(handle, f"{owner}/{name}", UserId(owner_id), rule=ShareRule(by, value), expires_at=expires_at)
            if is_share
            else LibraryAccess(handle, name, UserId(owner_id), role)
            for is_share, _, name, handle, owner_id, owner, role, by, value, expires_at in db.execute(
                _LIBRARIES, (user_id, self._clock())
            )
        )

    # Groups

    @control_operation("write")
    def create_group(self, db: ControlConnection, manager_id: UserId, name: str) -> Group:
        """Creates a group with its first manager."""
        manager = registry.select_user(db, manager_id)
        if manager is None or manager.is_disabled or manager.kind != "person":
            raise NotFound("user", manager_id)
        _require_group_name(name)
        _require_below(db, "group_members WHERE user_id = ?", GROUPS_MAX, "groups of a person", manager_id)
        now = self._clock()
        handle = _new_handle(db, "g_", "SELECT 1 FROM users WHERE subject = ?")
        group = registry.insert_user(db, name, _ISSUER, handle, now, "writer", "person", kind="group")
        _insert_member(db, group.id, manager_id, "manager", manager_id, now)
        return _find(db, manager_id, name)

    @control_operation("read")
    def list_groups(self, db: ControlConnection, actor: UserId | None) -> Sequence[Group]:
        """Returns the groups of a person, or all of them for the operator."""
        return _groups(db, actor)

    @control_operation("read")
    def get_group(self, db: ControlConnection, actor: UserId | None, name: str) -> Group:
        return _find(db, actor, name)

    @control_operation("write")
    def rename_group(self, db: ControlConnection, actor: UserId | None, name: str, new_name: str) -> Group:
        """Gives the group another name. Its handle stays, and so do the addresses of its items."""
        group = _find(db, actor, name, needs_manager=True)
        _require_group_name(new_name)
        if new_name.lower() != group.name.lower():
            registry.require_free_name(db, new_name)
        db.execute("UPDATE users SET name = ? WHERE id = ?", (new_name, group.id))
        return _find(db, actor, new_name)

    @control_operation("withdraw")
    def close_group(self, db: ControlConnection, actor: UserId | None, name: str) -> Group:
        """Ends the access of all members, before the library is deleted. A deletion that failed can be repeated."""
        group = _find(db, actor, name, needs_manager=True, is_open=False)
        db.execute("UPDATE users SET disabled_at = coalesce(disabled_at, ?) WHERE id = ?", (self._clock(), group.id))
        return group

    @control_operation("withdraw")
    def delete_group(self, db: ControlConnection, group_id: UserId) -> None:
        """Deletes a group that was closed, with its memberships, invitations and what was shared with it."""
        db.execute("DELETE FROM users WHERE id = ? AND kind = 'group' AND disabled_at IS NOT NULL", (group_id,))

    # Members

    @control_operation("read")
    def list_members(self, db: ControlConnection, actor: UserId | None, name: str) -> Sequence[Member]:
        """Returns the members of a group, which each of them may see, those who joined first in front."""
        return _members(db, _find(db, actor, name).id)

    @control_operation("withdraw")
    def set_role(self, db: ControlConnection, actor: UserId | None, name: str, user: str, role: GroupRole) -> Member:
        group = _find(db, actor, name, needs_manager=True)
        member = _member(db, group.id, user)
        if member.issuer is not None:
            raise Conflict(f"the membership of {member.name!r} comes from the identity provider; change it there")
        if role != "manager":
            _require_other_manager(db, group.id, member)
        db.execute(
            "UPDATE group_members SET role = ? WHERE group_id = ? AND user_id = ?", (role, group.id, member.user_id)
        )
        return _member(db, group.id, user)

    @control_operation("withdraw")
    def remove_member(self, db: ControlConnection, actor: UserId | None, name: str, user: str) -> Member:
        """Ends a membership: a manager that of anyone, a member their own."""
        group = _find(db, actor, name)
        person = registry.select_user_by_name(db, user)
        if group.role != "manager" and (person is None or person.id != actor):
            raise RoleNeeded
        member = _member(db, group.id, user)
        _require_other_manager(db, group.id, member)
        if member.user_id != actor:
            _delete_known_links(db, group.id, member.user_id)
        _end_membership(db, group.id, member.user_id)
        return member

    @control_operation("write")
    def add_member(self, db: ControlConnection, name: str, user: str, role: GroupRole) -> Member:
        """Adds a member without an invitation, which only the operator can."""
        group, person = _find(db, None, name), _person(db, user)
        _join(db, group.id, person, role, None, self._clock())
        return _member(db, group.id, user)

    # Invitations

    @control_operation("write")
    def invite(
        self,
        db: ControlConnection,
        actor: UserId | None,
        name: str,
        role: GroupRole,
        user: str = "",
        uses: int = 1,
        created_with: str | None = None,
    ) -> tuple[GroupInvitation, str]:
        """Invites a person, who must accept, or creates a link, and returns its secret, too. A later invitation of a
        person replaces an earlier one. `created_with` is the API key of the manager, if it was one."""
        group, now = _find(db, actor, name, needs_manager=True), self._clock()
        if not 1 <= uses <= INVITATION_USES_MAX:
            raise InvalidParams(f"uses: expected 1 to {INVITATION_USES_MAX}, got {uses}")
        db.execute("DELETE FROM group_invitations WHERE expires_at <= ?", (now,))
        secret, digest, user_id = registry.generate_credential(_LINK), None, None
        if user:
            person = _person(db, user)
            secret, user_id = "", person.id
            if _role(db, group.id, person.id) is not None:
                raise Conflict(f"{person.name!r} is already a member")
            db.execute("DELETE FROM group_invitations WHERE group_id = ? AND user_id = ?", (group.id, user_id))
            _require_below(db, "group_invitations WHERE user_id = ?", INVITATIONS_MAX, "invitations", user_id)
        else:
            digest = registry.hash_credential(secret)
        _require_below(db, "group_invitations WHERE group_id = ?", INVITATIONS_MAX, "invitations", group.id)
        invitation_id = registry.generate_id("i_")
        db.execute(
            "INSERT INTO group_invitations (id, group_id, user_id, hash, role, uses_left, created_by, created_at, "
            "expires_at, created_with) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(invitation_id, group.id, user_id, digest, role, 1 if user else uses, actor, now),
                *(now + INVITATION_TTL_S, created_with),
            ),
        )
        [invitation] = _invitations(db, now, "i.id = ?", invitation_id)
        return invitation, secret

    @control_operation("read")
    def list_invitations(self, db: ControlConnection, actor: UserId | None, name: str) -> Sequence[GroupInvitation]:
        """Returns the invitations of a group that can be used, without the links."""
        group = _find(db, actor, name, needs_manager=True)
        return _invitations(db, self._clock(), "i.group_id = ?", group.id)

    @control_operation("read")
    def incoming_invitations(self, db: ControlConnection, user_id: UserId) -> Sequence[GroupInvitation]:
        """Returns those that wait for an answer of this person."""
        return _invitations(db, self._clock(), "i.user_id = ?", user_id)

    @control_operation("read")
    def find_link(self, db: ControlConnection, secret: str) -> GroupInvitation:
        """Returns the invitation of a link without using it."""
        return self._link(db, secret)

    @control_operation("withdraw")
    def revoke_invitation(self, db: ControlConnection, actor: UserId | None, name: str, invitation_id: str) -> None:
        group = _find(db, actor, name, needs_manager=True)
        sql = "DELETE FROM group_invitations WHERE id = ? AND group_id = ?"
        if not db.execute(sql, (invitation_id, group.id)).rowcount:
            raise NotFound("invitation", invitation_id[:60])

    @control_operation("write")
    def accept(self, db: ControlConnection, user_id: UserId, invitation: str) -> Group:
        """Makes the person a member. `invitation` is the id of one that names them, or the secret of a link."""
        found = self._invitation_for(db, user_id, invitation)
        person = registry.select_user(db, user_id)
        if person is None or person.is_disabled or person.kind != "person":
            raise InvitationNotValid
        (group_id, sender) = db.execute(
            "SELECT group_id, created_by FROM group_invitations WHERE id = ?", (found.id,)
        ).fetchone()
        _join(db, group_id, person, found.role, sender, self._clock())
        db.execute("UPDATE group_invitations SET uses_left = uses_left - 1 WHERE id = ?", (found.id,))
        db.execute(
            "DELETE FROM group_invitations WHERE (id = ? AND uses_left <= 0) OR (group_id = ? AND user_id = ?)",
            (found.id, group_id, user_id),
        )
        return _find(db, user_id, found.group)

    @control_operation("write")
    def decline(self, db: ControlConnection, user_id: UserId, invitation: str) -> GroupInvitation:
        """Deletes an invitation of this person. A link stays for others."""
        found = self._invitation_for(db, user_id, invitation)
        db.execute("DELETE FROM group_invitations WHERE id = ? AND user_id = ?", (found.id, user_id))
        return found

    def _invitation_for(self, db: ControlConnection, user_id: UserId, invitation: str) -> GroupInvitation:
        if registry.is_credential(invitation, _LINK):
            return self._link(db, invitation)
        named = _invitations(db, self._clock(), "i.user_id = ?", user_id)
        found = next((one for one in named if one.id == invitation), None)
        if found is None:
            raise InvitationNotValid
        return found

    def _link(self, db: ControlConnection, secret: str) -> GroupInvitation:
        found = _invitations(db, self._clock(), "i.hash = ?", registry.hash_credential(secret))
        if not found:
            raise InvitationNotValid
        return found[0]

    # Shares

    @control_operation("write")
    def create_share(
        self,
        db: ControlConnection,
        owner_id: UserId,
        rule: ShareRule,
        to: str,
        name: str = "",
        created_with: str | None = None,
    ) -> Share:
        """Shares a part of the owner's own library for reading, with a person, or with a group that the owner is in."""
        name = name or rule.value
        registry.require_printable("value", rule.value)
        registry.require_printable("name", name)
        owner = registry.select_user(db, owner_id)
        if owner is None or owner.is_disabled or owner.kind != "person":
            raise Conflict("only people share parts of their libraries; that of a group is for its members")
        group = registry.select_group(db, to)
        if group is not None and (group.is_disabled or _role(db, group.id, owner_id) is None):
            raise NotFound("user or group", to[:60])
        target = group or registry.select_user_by_name(db, to)
        if target is None or target.is_disabled:
            raise NotFound("user or group", to[:60])
        if target.id == owner_id:
            raise InvalidParams("to: expected another person or a group, got yourself")
        _require_below(db, "shares WHERE owner_id = ?", SHARES_MAX, "shares of a person", owner_id)
        _require_below(db, "shares WHERE to_id = ?", SHARES_RECEIVED_MAX, "shares with one recipient", target.id)
        between, pair = "shares WHERE owner_id = ? AND to_id = ?", (owner_id, target.id)
        _require_below(db, between, SHARES_BETWEEN_MAX, "shares of one person with one recipient", *pair)
        share_id = _new_handle(db, "s_", "SELECT 1 FROM shares WHERE id = ?")
        same = "SELECT 1 FROM shares WHERE owner_id = ? AND to_id = ? AND rule_by = ? AND rule_value = ?"
        if db.execute(same, (owner_id, target.id, rule.by, rule.value)).fetchone():
            raise Conflict(f"the {rule.by} {rule.value!r} is already shared with {target.name!r}")
        db.execute(
            "INSERT INTO shares (id, owner_id, to_id, rule_by, rule_value, name, created_at, created_with) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (share_id, owner_id, target.id, rule.by, rule.value, name, self._clock(), created_with),
        )
        [share] = _shares(db, "s.id = ?", share_id)
        return share

    @control_operation("read")
    def list_shares(self, db: ControlConnection, actor: UserId | None) -> Sequence[Share]:
        """Returns what the person shares and what is shared with them and their groups, or everything for the
        operator."""
        if actor is None:
            return _shares(db, "1 = 1")
        mine = "o.id = ?1 OR t.id = ?1 OR t.id IN (SELECT group_id FROM group_members WHERE user_id = ?1)"
        return _shares(db, mine, actor)

    @control_operation("withdraw")
    def delete_share(self, db: ControlConnection, actor: UserId | None, share_id: str) -> Share:
        """Ends a share, for the owner, or for who receives it and does not want it; in a group, a manager decides."""
        found = _shares(db, "s.id = ?", share_id)
        if actor is not None and found:
            owner_id, to_id = db.execute("SELECT owner_id, to_id FROM shares WHERE id = ?", (share_id,)).fetchone()
            role = _role(db, to_id, actor)
            if actor not in (owner_id, to_id) and role != "manager":
                if role is not None:
                    raise RoleNeeded
                found = []
        if not found:
            raise NotFound("share", share_id[:60])
        db.execute("DELETE FROM shares WHERE id = ?", (share_id,))
        return found[0]

    # Identity providers

    async def apply_claims(
        self, user_id: UserId, issuer: str, roles: Mapping[str, GroupRole], issued_at: float
    ) -> Sequence[ClaimedMembership]:
        """Makes the memberships that an issuer's claims give a person those of `roles`, by group name, and returns what
        changed. Memberships that people gave stay. A credential that is older than the last one that changed something
        is ignored, because it may be out of date."""

        def find(db: ControlConnection) -> list[ClaimedMembership]:
            row = db.execute("SELECT claims_at FROM users WHERE id = ?", (user_id,)).fetchone()
            if row is None or issued_at < row[0]:
                return []
            wanted: dict[UserId, ClaimedMembership] = {}
            for name, role in roles.items():
                # A name that no group has is ignored: the operator may create the group later.
                group = registry.select_group(db, name)
                if group is not None and not group.is_disabled:
                    wanted[group.id] = ClaimedMembership(group.id, group.name, role)
            changes = []
            for group_id, name, role, given_by in db.execute(
                "SELECT g.id, g.name, m.role, m.issuer FROM group_members m JOIN users g ON g.id = m.group_id "
                "WHERE m.user_id = ?",
                (user_id,),
            ).fetchall():
                claimed = wanted.pop(group_id, None)
                if given_by == issuer and claimed is None:
                    changes.append(ClaimedMembership(group_id, name, None))
                elif given_by == issuer and claimed is not None and claimed.role != role:
                    changes.append(claimed)
            return [*changes, *wanted.values()]

        def apply(db: ControlConnection) -> list[ClaimedMembership]:
            changes = []
            for one in find(db):
                earlier, successor = _role(db, one.group_id, user_id), None
                if one.role is None:
                    _delete_known_links(db, one.group_id, user_id)
                    _end_membership(db, one.group_id, user_id)
                elif earlier is None:
                    _insert_member(db, one.group_id, user_id, one.role, None, self._clock(), issuer)
                else:
                    sql = "UPDATE group_members SET role = ? WHERE group_id = ? AND user_id = ?"
                    db.execute(sql, (one.role, one.group_id, user_id))
                if earlier == "manager":
                    # Only someone whom people added: claims decide about the others.
                    successor = _pass_on(db, one.group_id, [m for m in _members(db, one.group_id) if m.issuer is None])
                changes.append(structs.replace(one, successor=successor))
            db.execute("UPDATE users SET claims_at = ? WHERE id = ?", (issued_at, user_id))
            return changes

        # A write would make all processes look up all credentials again, and most tokens change nothing.
        return await self._database.write(apply) if await self._database.read(find) else ()

    # Deletion of a person

    @control_operation("read")
    def sole_groups(self, db: ControlConnection, user_id: UserId) -> Sequence[Group]:
        """Returns the groups of which this person is the only member. Without the person, nobody could use them."""
        return [one for one in _groups(db, user_id) if one.members == 1]

    @control_operation("withdraw")
    def delete_person(self, db: ControlConnection, user_id: UserId) -> Mapping[str, UserId]:
        """Deletes a person, with all credentials, memberships and shares. A group whose only manager they are passes to
        the writer, else the reader, who joined first. Returns the new managers by group. Raises Conflict while a group
        has no other member."""
        successors: dict[str, UserId] = {}
        for group in _groups(db, user_id):
            others = [one for one in _members(db, group.id) if one.user_id != user_id]
            if not others:
                raise Conflict(f"{group.name!r} has no other member; delete the group first, or export its library")
            if group.role == "manager" and (successor := _pass_on(db, group.id, others, leaving=user_id)):
                successors[group.name] = successor
        registry.remove_user_row(db, user_id, self._clock())
        return successors


def _groups(db: ControlConnection, actor: UserId | None) -> list[Group]:
    """Returns the groups of a person, or all of them, also those that are being deleted, for the operator."""
    rows = db.execute(
        "SELECT g.id, g.subject, g.name, coalesce(m.role, 'manager'), "
        "(SELECT count(*) FROM group_members WHERE group_id = g.id), g.created_at FROM users g "
        "LEFT JOIN group_members m ON m.group_id = g.id AND m.user_id = ?1 WHERE g.kind = 'group' "
        "AND (?1 IS NULL OR (m.role IS NOT NULL AND g.disabled_at IS NULL)) ORDER BY lower(g.name)",
        (actor,),
    ).fetchall()
    return [Group(**dict(zip(Group.__struct_fields__, row, strict=True))) for row in rows]


def _find(
    db: ControlConnection, actor: UserId | None, name: str, *, needs_manager: bool = False, is_open: bool = True
) -> Group:
    """Returns a group by its name or handle. For people who are not in it, it does not exist."""
    record = registry.select_group(db, name)
    role = None if record is None else "manager" if actor is None else _role(db, record.id, actor)
    if actor is not None and ((person := registry.select_user(db, actor)) is None or person.is_disabled):
        role = None
    if record is None or role is None or (is_open and record.is_disabled):
        raise NotFound("group", name[:60])
    if needs_manager and role != "manager":
        raise RoleNeeded
    (members,) = db.execute("SELECT count(*) FROM group_members WHERE group_id = ?", (record.id,)).fetchone()
    return Group(
        id=record.id,
        handle=record.subject,
        name=record.name,
        role=role,
        members=members,
        created_at=record.created_at,
    )


def _role(db: ControlConnection, group_id: str, user_id: str) -> GroupRole | None:
    row = db.execute(
        "SELECT role FROM group_members WHERE group_id = ? AND user_id = ?", (group_id, user_id)
    ).fetchone()
    return row[0] if row else None


def _members(db: ControlConnection, group_id: UserId) -> list[Member]:
    rows = db.execute(
        "SELECT u.id, u.name, m.role, m.added_at, m.issuer, u.disabled_at IS NOT NULL FROM group_members m "
        "JOIN users u ON u.id = m.user_id WHERE m.group_id = ? ORDER BY m.added_at, u.name",
        (group_id,),
    )
    return [
        Member(
            user_id=UserId(user_id),
            name=name,
            role=role,
            added_at=added_at,
            issuer=issuer,
            is_disabled=bool(is_disabled),
        )
        for user_id, name, role, added_at, issuer, is_disabled in rows.fetchall()
    ]


def _member(db: ControlConnection, group_id: UserId, user: str) -> Member:
    found = next((one for one in _members(db, group_id) if one.name.lower() == user.lower()), None)
    if found is None:
        raise NotFound("member", user[:60])
    return found


def _require_other_manager(db: ControlConnection, group_id: UserId, member: Member) -> None:
    """Raises Conflict if the group would be left without someone who can manage it."""
    managers = [one.user_id for one in _members(db, group_id) if one.role == "manager" and not one.is_disabled]
    if member.role == "manager" and not set(managers) - {member.user_id}:
        raise Conflict("the group needs a manager: give another member that role first, or delete the group")


def _pass_on(
    db: ControlConnection, group_id: UserId, candidates: Sequence[Member], leaving: UserId | None = None
) -> UserId | None:
    """Makes one of them the manager of a group that has none but the one who leaves. Returns who it is."""
    remaining = [one for one in _members(db, group_id) if one.user_id != leaving]
    if not candidates or any(one.role == "manager" and not one.is_disabled for one in remaining):
        return None
    # A disabled person cannot manage anything now. Those who can come first.
    successor = min(candidates, key=lambda one: (one.is_disabled, -ROLES.index(one.role), one.added_at, one.name))
    db.execute(
        "UPDATE group_members SET role = 'manager', issuer = NULL WHERE group_id = ? AND user_id = ?",
        (group_id, successor.user_id),
    )
    return successor.user_id


def _join(
    db: ControlConnection,
    group_id: UserId,
    person: registry.UserRecord,
    role: GroupRole,
    sender: UserId | None,
    now: float,
) -> None:
    if _role(db, group_id, person.id) is not None:
        raise Conflict(f"{person.name!r} is already a member")
    _require_below(db, "group_members WHERE group_id = ?", MEMBERS_MAX, "members of a group", group_id)
    _require_below(db, "group_members WHERE user_id = ?", GROUPS_MAX, "groups of a person", person.id)
    _insert_member(db, group_id, person.id, role, sender, now)


def _insert_member(
    db: ControlConnection,
    group_id: str,
    user_id: str,
    role: GroupRole,
    added_by: UserId | None,
    now: float,
    issuer: str | None = None,
) -> None:
    db.execute(
        "INSERT INTO group_members (group_id, user_id, role, added_by, added_at, issuer) VALUES (?, ?, ?, ?, ?, ?)",
        (group_id, user_id, role, added_by, now, issuer),
    )


def _delete_known_links(db: ControlConnection, group_id: str, user_id: str) -> None:
    """Deletes the links that a removed member may have joined with, because some can be used more than once."""
    db.execute(
        "DELETE FROM group_invitations WHERE group_id = ?1 AND user_id IS NULL AND created_at <= "
        "(SELECT added_at FROM group_members WHERE group_id = ?1 AND user_id = ?2)",
        (group_id, user_id),
    )


def _end_membership(db: ControlConnection, group_id: str, user_id: str) -> None:
    db.execute("DELETE FROM group_members WHERE group_id = ? AND user_id = ?", (group_id, user_id))
    # What they shared with the group was for the people they knew in it.
    db.execute("DELETE FROM shares WHERE owner_id = ? AND to_id = ?", (user_id, group_id))


def _invitations(db: ControlConnection, now: float, condition: str, value: object) -> list[GroupInvitation]:
    """Returns the invitations that can be used, the newest first. Those of someone who no longer manages the group
    cannot, because someone who was removed could otherwise return."""
    rows = db.execute(
        "SELECT i.id, g.name, i.role, coalesce(u.name, ''), i.uses_left, coalesce(c.name, ''), i.created_at, "  # noqa: S608 - constants
        "i.expires_at FROM group_invitations i JOIN users g ON g.id = i.group_id LEFT JOIN users u ON u.id = i.user_id "
        "LEFT JOIN users c ON c.id = i.created_by WHERE g.disabled_at IS NULL AND i.expires_at > ? "
        "AND (i.created_by IS NULL OR (c.disabled_at IS NULL AND (c.expires_at IS NULL OR c.expires_at > ?) "
        "AND EXISTS (SELECT 1 FROM group_members m "
        "WHERE m.group_id = g.id AND m.user_id = c.id AND m.role = 'manager'))) "
        f"AND {condition} ORDER BY i.created_at DESC, i.id",
        (now, now, value),
    )
    return [
        GroupInvitation(**dict(zip(GroupInvitation.__struct_fields__, row, strict=True))) for row in rows.fetchall()
    ]


def _shares(db: ControlConnection, condition: str, *values: Any) -> list[Share]:
    rows = db.execute(
        "SELECT s.id, o.name, t.name, t.kind, s.rule_by, s.rule_value, s.name, s.created_at FROM shares s "  # noqa: S608 - constants
        f"JOIN users o ON o.id = s.owner_id JOIN users t ON t.id = s.to_id WHERE {condition} "
        "ORDER BY lower(o.name), s.created_at, s.id",
        values,
    )
    return [
        Share(
            id=share_id,
            owner=owner,
            to=to,
            to_group=kind == "group",
            rule=ShareRule(by, value),
            name=name,
            created_at=created_at,
        )
        for share_id, owner, to, kind, by, value, name, created_at in rows.fetchall()
    ]


def _person(db: ControlConnection, name: str) -> registry.UserRecord:
    person = registry.select_user_by_name(db, name)
    if person is None or person.is_disabled:
        raise NotFound("user", name[:60])
    return person


def _require_group_name(name: str) -> None:
    # A group named like another group's handle would be mistaken for it.
    if name.lower() in _RESERVED or _HANDLE.fullmatch(name.lower()):
        raise InvalidParams(f"name: {name!r} has another meaning; choose another name")


def _require_below(db: ControlConnection, rows: str, limit: int, what: str, *values: object) -> None:
    (count,) = db.execute(f"SELECT count(*) FROM {rows}", values).fetchone()  # noqa: S608 - constants
    if count >= limit:
        raise Conflict(f"the limit of {limit} {what} is reached")


def _new_handle(db: ControlConnection, prefix: str, taken: str) -> str:
    """Returns a short text that is part of URIs. It gives no access, so it need not be hard to guess."""
    while True:
        handle = prefix + base64.b32encode(secrets.token_bytes(10)).decode().lower()[:_HANDLE_CHARS]
        if not db.execute(taken, (handle,)).fetchone():
            return handle
