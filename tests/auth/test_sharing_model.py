"""Random memberships, grants, restrictions and revocations, compared with a small model after every step: who has which
libraries, with which role, through which credential. On each engine."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import Struct, field

from auth.authenticator import RegistryAuthenticator
from auth.context import READ, Principal, ShareRule
from auth.registry import Registry
from auth.sharing import InvitationNotValid, RoleNeeded, Sharing
from config.errors import Conflict, InvalidParams, NotFound, Unauthenticated
from config.paths import UserId
from tests.auth.auth_fixture import FakeClock, make_authenticator, make_settings

PEOPLE, GROUPS, TAGS = ("ada", "ben", "cy", "dee"), ("team", "crew", "club"), ("recipes", "travel")
ROLES: Any = ("reader", "writer", "manager")
REFUSALS = (Conflict, InvalidParams, NotFound, RoleNeeded, InvitationNotValid)
# What a library is, to its user: its handle, its owner, the role, and the tag that is shared.
Access = tuple[str, str, str, str]


class Model(Struct):
    """What should be true."""

    disabled: set[str] = field(default_factory=set)
    handles: dict[str, str] = field(default_factory=dict)
    members: dict[str, dict[str, str]] = field(default_factory=dict)
    # Owner, recipient and tag by handle.
    shares: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    # The person, the secret and the handles of a key; None means all.
    keys: list[tuple[str, str, frozenset[str] | None]] = field(default_factory=list)

    def managers(self, group: str) -> set[str]:
        return {name for name, role in self.members.get(group, {}).items() if role == "manager"} - self.disabled

    def libraries(self, name: str) -> set[Access]:
        if name in self.disabled:
            return set()
        own = {(self.handles[g], g, roles[name], "") for g, roles in self.members.items() if name in roles}
        for handle, (owner, to, tag) in self.shares.items():
            is_for = to == name or name in self.members.get(to, {})
            if is_for and owner != name and owner not in self.disabled:
                own.add((handle, owner, "reader", tag))
        return own


class World:
    """Takes random steps on a server and in the model."""

    def __init__(self, registry: Registry, sharing: Sharing, authenticator: RegistryAuthenticator, seed: int) -> None:
        self.registry, self.sharing, self.authenticator = registry, sharing, authenticator
        self.random, self.model = random.Random(seed), Model()
        self.ids: dict[str, UserId] = {}
        self.owners: dict[str, str] = {}
        # Principals of connections that were opened some time ago.
        self.connections: list[tuple[str, Principal, frozenset[str] | None]] = []

    async def step(self) -> str:
        steps: list[Callable[[], Awaitable[bool]]] = [
            *(self.create_group, self.invite, self.invite, self.invite, self.set_role, self.remove, self.share),
            *(self.share, self.end_share, self.delete_group, self.create_key, self.connect, self.toggle_access),
        ]
        step = self.random.choice(steps)
        try:
            expected = await step()
        except REFUSALS as refusal:
            return f"{step.__name__}: {refusal}"
        assert expected, f"{step.__name__} should have been refused"
        return step.__name__

    def person(self) -> str:
        return self.random.choice(PEOPLE)

    async def create_group(self) -> bool:
        name, group = self.person(), self.random.choice(GROUPS)
        created = await self.sharing.create_group(self.ids[name], group)
        self.model.members[group] = {name: "manager"}
        self.model.handles[group] = created.handle
        self.owners[created.id] = group
        return name not in self.model.disabled

    async def invite(self) -> bool:
        actor, name, group = self.person(), self.person(), self.random.choice(GROUPS)
        role, by_name = self.random.choice(ROLES), self.random.random() < 0.5
        is_permitted = self.model.members.get(group, {}).get(actor) == "manager"
        members, disabled = self.model.members.get(group, {}), self.model.disabled
        invitation, secret = await self.sharing.invite(self.ids[actor], group, role, name if by_name else "")
        await self.sharing.accept(self.ids[name], invitation.id if by_name else secret)
        is_permitted &= name not in members and name not in disabled and actor not in disabled
        members[name] = role
        return is_permitted

    async def set_role(self) -> bool:
        actor, name, group = self.person(), self.person(), self.random.choice(GROUPS)
        role, members = self.random.choice(ROLES), self.model.members.get(group, {})
        is_permitted = members.get(actor) == "manager" and name in members and actor not in self.model.disabled
        is_permitted &= role == "manager" or members.get(name) != "manager" or bool(self.model.managers(group) - {name})
        await self.sharing.set_role(self.ids[actor], group, name, role)
        members[name] = role
        return is_permitted

    async def remove(self) -> bool:
        actor, name, group = self.person(), self.person(), self.random.choice(GROUPS)
        members = self.model.members.get(group, {})
        is_permitted = name in members and (actor == name or members.get(actor) == "manager")
        is_permitted &= members.get(name) != "manager" or bool(self.model.managers(group) - {name})
        is_permitted &= actor not in self.model.disabled
        await self.sharing.remove_member(self.ids[actor], group, name)
        del members[name]
        self.model.shares = {handle: share for handle, share in self.model.shares.items() if share[:2] != (name, group)}
        return is_permitted

    async def share(self) -> bool:
        owner, to, tag = self.person(), self.random.choice(PEOPLE + GROUPS), self.random.choice(TAGS)
        share = await self.sharing.create_share(self.ids[owner], ShareRule("tag", tag), to)
        is_permitted = owner in self.model.members[to] if to in GROUPS else owner != to
        is_permitted &= (owner, to, tag) not in self.model.shares.values() and not {owner, to} & self.model.disabled
        self.model.shares[share.id] = (owner, to, tag)
        return is_permitted

    async def end_share(self) -> bool:
        actor, handle = self.person(), self.random.choice([*self.model.shares, "s_unknown"])
        await self.sharing.delete_share(self.ids[actor], handle)
        owner, to, _ = self.model.shares.pop(handle)
        return actor in (owner, to) or self.model.members.get(to, {}).get(actor) == "manager"

    async def delete_group(self) -> bool:
        if self.random.random() < 0.7:
            return True
        actor, group = self.person(), self.random.choice(GROUPS)
        is_permitted = actor in self.model.managers(group)
        closed = await self.sharing.close_group(self.ids[actor], group)
        await self.sharing.delete_group(closed.id)
        del self.model.members[group]
        self.model.shares = {handle: one for handle, one in self.model.shares.items() if one[1] != group}
        return is_permitted

    async def create_key(self) -> bool:
        name = self.person()
        known = [*self.model.handles.values(), *self.model.shares, "g_unknown"]
        chosen = self.random.sample(known, self.random.randint(0, len(known)))
        limit = None if self.random.random() < 0.3 else frozenset(chosen)
        _, secret = await self.registry.create_key(self.ids[name], "key", [READ], libraries=limit)
        self.model.keys.append((name, f"Bearer {secret}", limit))
        return name not in self.model.disabled

    async def connect(self) -> bool:
        if self.model.keys:
            name, bearer, limit = self.random.choice(self.model.keys)
            self.connections.append((name, await self.authenticator.authenticate(bearer), limit))
        return True

    async def toggle_access(self) -> bool:
        name = self.person()
        if self.random.random() < 0.5 and name not in self.model.disabled:
            await self.registry.disable_user(self.ids[name])
            self.model.disabled.add(name)
            # All that was granted before is withdrawn for good.
            self.model.keys = [key for key in self.model.keys if key[0] != name]
        else:
            await self.registry.enable_user(self.ids[name])
            self.model.disabled.discard(name)
        return True

    async def compare(self, done: str) -> None:
        for name in PEOPLE:
            found = {self.access(one) for one in await self.sharing.libraries_of(self.ids[name])}
            assert found == self.model.libraries(name), (name, done)
        for name, bearer, limit in self.model.keys:
            self.compare_principal(name, await self.authenticator.authenticate(bearer), limit, done)
        for name, opened, limit in list(self.connections):
            try:
                principal = await self.authenticator.recheck(opened)
            except Unauthenticated:
                assert name in self.model.disabled or opened.epoch < await self.epoch(name), (name, done)
                self.connections.remove((name, opened, limit))
            else:
                self.compare_principal(name, principal, limit, done)

    async def epoch(self, name: str) -> int:
        user = await self.registry.user_by_id(self.ids[name])
        assert user is not None
        return user.epoch

    def compare_principal(self, name: str, principal: Principal, limit: frozenset[str] | None, done: str) -> None:
        expected = {one for one in self.model.libraries(name) if limit is None or one[0] in limit}
        assert {self.access(one) for one in principal.libraries} == expected, (name, limit, done)
        # What is shared can only be read.
        assert not any(one.can_write for one in principal.libraries if one.rule is not None)

    def access(self, one: Any) -> Access:
        return (one.handle, self.owners[one.owner_id], one.role, one.rule.value if one.rule else "")


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow("is a long random run"))])
async def test_everyone_has_what_the_model_says_after_every_step(
    registry: Registry, clock: FakeClock, seed: int
) -> None:
    authenticator = make_authenticator(make_settings(require_auth=True), registry, clock)
    world = World(registry, Sharing(registry.database, clock), authenticator, seed)
    for name in PEOPLE:
        user = await registry.add_user(name)
        world.ids[name], world.owners[user.id] = user.id, name
    done = []
    for _ in range(80):
        clock.advance(1)
        done.append(await world.step())
        await world.compare(done[-1])
    # The steps must not all have been refused.
    assert len([step for step in done if ":" not in step]) > 25
    assert world.model.keys or world.connections
