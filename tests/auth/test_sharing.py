"""Groups, invitations and shares on each engine: who may do what, and which libraries each credential has."""

from typing import Any

import pytest

from auth.authenticator import RegistryAuthenticator
from auth.context import READ, WRITE, LibraryAccess, Principal, ShareRule
from auth.oauth.grants import GrantRequest, OAuthGrants, TokenResource
from auth.oauth.tokens import OAuthTokens, TokenRequest
from auth.rate_limits import RateLimits, in_process_limits
from auth.registry import Registry, UserRecord
from auth.sharing import INVITATION_TTL_S, SHARES_BETWEEN_MAX, InvitationNotValid, RoleNeeded, Sharing
from config.errors import Conflict, InvalidParams, NotFound, Unauthenticated
from config.openid import GroupRole
from tests.auth.auth_fixture import ISSUER, SECRET, FakeClock, make_authenticator, make_settings
from tests.auth.issuers import hs256
from tests.auth.test_both_engines import CHALLENGE, REDIRECT, VERIFIER

RECIPES = ShareRule("tag", "recipes")


@pytest.fixture
def sharing(registry: Registry, clock: FakeClock) -> Sharing:
    return Sharing(registry.database, clock)


@pytest.fixture
def authenticator(registry: Registry, clock: FakeClock) -> RegistryAuthenticator:
    return make_authenticator(make_settings(require_auth=True), registry, clock)


async def names(sharing: Sharing, user: UserRecord) -> list[str]:
    return [one.name for one in await sharing.libraries_of(user.id)]


async def add_member(sharing: Sharing, manager: UserRecord, group: str, user: UserRecord, role: Any = "reader") -> None:
    invitation, _ = await sharing.invite(manager.id, group, role, user.name)
    await sharing.accept(user.id, invitation.id)


# Libraries


async def test_members_and_recipients_have_libraries_and_others_have_none(registry: Registry, sharing: Sharing) -> None:
    ada, ben, cy = [await registry.add_user(name) for name in ("ada", "ben", "cy")]
    team = await sharing.create_group(ada.id, "team")
    await add_member(sharing, ada, "team", ben, "writer")
    to_team = await sharing.create_share(ben.id, RECIPES, "team")
    to_cy = await sharing.create_share(ben.id, ShareRule("source", "notes"), "cy", "my notes")

    assert await sharing.libraries_of(ada.id) == (
        LibraryAccess(team.handle, "team", team.id, "manager"),
        LibraryAccess(to_team.id, "ben/recipes", ben.id, "reader", RECIPES),
    )
    # The owner of a share needs no access to it.
    assert await sharing.libraries_of(ben.id) == (LibraryAccess(team.handle, "team", team.id, "writer"),)
    assert await sharing.libraries_of(cy.id) == (
        LibraryAccess(to_cy.id, "ben/my notes", ben.id, "reader", ShareRule("source", "notes")),
    )
    # A group is a member of nothing, also for the operator.
    assert await sharing.libraries_of(team.id) == ()


async def test_groups_are_no_users(registry: Registry, sharing: Sharing, clock: FakeClock) -> None:
    ada = await registry.add_user("ada")
    team = await sharing.create_group(ada.id, "team")

    assert [user.name for user in await registry.list_users()] == ["ada"]
    assert [user.name for user in await registry.list_owners()] == ["ada", "team"]
    assert await registry.user_by_name("team") is None
    with pytest.raises(Conflict, match="only people have keys"):
        await registry.create_key(team.id, "laptop", [READ])
    # No token can be that of a group, whatever it says.
    record = await registry.user_by_id(team.id)
    assert record is not None
    assert await registry.user_by_identity(record.issuer, record.subject) is None
    assert await registry.user_of_claims(record.issuer, record.subject, record.issuer) is None
    authenticator = make_authenticator(make_settings(jwt_secret=SECRET, jwt_create_users=False), registry, clock)
    for subject in ("team", team.handle, team.id):
        with pytest.raises(Unauthenticated):
            await authenticator.authenticate(f"Bearer {hs256().token(sub=subject)}")


async def test_no_two_people_or_groups_have_the_same_name(registry: Registry, sharing: Sharing) -> None:
    ada = await registry.add_user("ada")
    await sharing.create_group(ada.id, "team")

    for name in ("ADA", "Team"):
        with pytest.raises(Conflict, match="already exists"):
            await sharing.create_group(ada.id, name)
        with pytest.raises(Conflict, match="already exists"):
            await registry.add_user(name)
    with pytest.raises(Conflict, match="already exists"):
        await sharing.rename_group(ada.id, "team", "Ada")
    for name in ("own", "-", "a/b", ""):
        with pytest.raises(InvalidParams):
            await sharing.create_group(ada.id, name)
    # A name that a token brings is changed if a group has it.
    assert (await registry.ensure_user(ISSUER, "77", "team")).name.startswith("team-")


async def test_renamed_group_keeps_its_handle(registry: Registry, sharing: Sharing) -> None:
    ada = await registry.add_user("ada")
    team = await sharing.create_group(ada.id, "team")

    assert (await sharing.rename_group(ada.id, "team", "Team")).name == "Team"
    renamed = await sharing.rename_group(ada.id, "team", "crew")

    assert (renamed.handle, renamed.name) == (team.handle, "crew")
    assert [(one.handle, one.name) for one in await sharing.libraries_of(ada.id)] == [(team.handle, "crew")]


async def test_group_cannot_take_the_place_of_another_by_a_name_like_its_handle(
    registry: Registry, sharing: Sharing
) -> None:
    ada, mallory = [await registry.add_user(name) for name in ("ada", "mallory")]
    team = await sharing.create_group(ada.id, "team")
    other = await sharing.create_group(mallory.id, "other")

    for name in (team.handle, team.handle.upper()):
        with pytest.raises(InvalidParams):
            await sharing.create_group(mallory.id, name)
        with pytest.raises(InvalidParams):
            await sharing.rename_group(mallory.id, "other", name)
    # Earlier versions allowed such a name.
    rename = "UPDATE users SET name = ? WHERE id = ?"
    await registry.database.write(lambda db: db.execute(rename, (team.handle, other.id)))
    assert (await sharing.get_group(ada.id, team.handle)).name == "team"
    assert (await sharing.get_group(mallory.id, other.handle)).id == other.id


async def test_member_who_was_removed_cannot_return_by_the_link_of_before(registry: Registry, sharing: Sharing) -> None:
    ada, ben, cy = [await registry.add_user(name) for name in ("ada", "ben", "cy")]
    await sharing.create_group(ada.id, "team")
    _, link = await sharing.invite(ada.id, "team", "reader", uses=5)
    await sharing.accept(ben.id, link)
    await sharing.remove_member(ben.id, "team", "ben")
    await sharing.accept(ben.id, link)  # someone who left may come back

    await sharing.remove_member(ada.id, "team", "ben")

    for person in (ben, cy):
        with pytest.raises(InvitationNotValid):
            await sharing.accept(person.id, link)


async def test_person_whose_account_has_ended_has_no_libraries(registry: Registry, sharing: Sharing) -> None:
    ada, ben = [await registry.add_user(name) for name in ("ada", "ben")]
    await sharing.create_group(ada.id, "team")
    await sharing.create_share(ada.id, RECIPES, "ben")
    _, link = await sharing.invite(ada.id, "team", "reader")

    await registry.expire_user(ada.id, 1.0)

    assert await sharing.libraries_of(ada.id) == ()
    # Nor does the person share anything, or invite anyone.
    assert await sharing.libraries_of(ben.id) == ()
    with pytest.raises(InvitationNotValid):
        await sharing.accept(ben.id, link)


# Who may do what


async def test_groups_do_not_exist_for_others_and_only_managers_change_them(
    registry: Registry, sharing: Sharing
) -> None:
    ada, ben, cy = [await registry.add_user(name) for name in ("ada", "ben", "cy")]
    await sharing.create_group(ada.id, "team")
    await add_member(sharing, ada, "team", ben, "writer")

    def attempts(actor: UserRecord) -> list[Any]:
        return [
            sharing.rename_group(actor.id, "team", "crew"),
            sharing.close_group(actor.id, "team"),
            # With any role: also with one that is above their own.
            *(sharing.invite(actor.id, "team", role) for role in ("reader", "writer", "manager")),
            sharing.invite(actor.id, "team", "manager", "cy"),
            sharing.list_invitations(actor.id, "team"),
            sharing.revoke_invitation(actor.id, "team", "i_x"),
            sharing.set_role(actor.id, "team", actor.name, "manager"),
            sharing.remove_member(actor.id, "team", "ada"),
        ]

    for attempt in attempts(ben):
        with pytest.raises(RoleNeeded):
            await attempt
    for attempt in [*attempts(cy), sharing.list_members(cy.id, "team"), sharing.get_group(cy.id, "team")]:
        with pytest.raises(NotFound) as raised:
            await attempt
        assert raised.value.message == "group 'team' not found"
    assert [one.name for one in await sharing.list_members(ben.id, "team")] == ["ada", "ben"]
    assert (await sharing.list_groups(cy.id), len(await sharing.list_groups(None))) == ([], 1)


async def test_nothing_is_shared_on(registry: Registry, sharing: Sharing) -> None:
    ada, ben, cy = [await registry.add_user(name) for name in ("ada", "ben", "cy")]
    team = await sharing.create_group(ada.id, "team")
    await add_member(sharing, ada, "team", ben)
    await sharing.create_share(ada.id, RECIPES, "ben")

    # A share is of the sharer's own library, never of what the sharer reads.
    await sharing.create_share(ben.id, RECIPES, "cy")
    assert [one.owner_id for one in await sharing.libraries_of(cy.id)] == [ben.id]
    with pytest.raises(Conflict, match="only people"):
        await sharing.create_share(team.id, RECIPES, "cy")
    # Someone who is not in a group cannot send it anything, and does not learn that it exists.
    with pytest.raises(NotFound):
        await sharing.create_share(cy.id, RECIPES, "team")
    with pytest.raises(NotFound):
        await sharing.create_share(cy.id, RECIPES, "nobody")
    with pytest.raises(InvalidParams, match="yourself"):
        await sharing.create_share(cy.id, RECIPES, "CY")
    with pytest.raises(Conflict, match="already shared"):
        await sharing.create_share(ben.id, RECIPES, "cy")


async def test_nobody_can_fill_the_list_of_another_person_alone(registry: Registry, sharing: Sharing) -> None:
    ada, _, cy = [await registry.add_user(name) for name in ("ada", "ben", "cy")]
    for number in range(SHARES_BETWEEN_MAX):
        await sharing.create_share(ada.id, ShareRule("tag", str(number)), "ben")

    with pytest.raises(Conflict, match="limit of 10 shares of one person with one recipient"):
        await sharing.create_share(ada.id, RECIPES, "ben")

    await sharing.create_share(ada.id, RECIPES, "cy")
    await sharing.create_share(cy.id, RECIPES, "ben")


async def test_share_is_ended_by_its_owner_or_its_recipient(registry: Registry, sharing: Sharing) -> None:
    ada, ben, cy = [await registry.add_user(name) for name in ("ada", "ben", "cy")]
    await sharing.create_group(ada.id, "team")
    await add_member(sharing, ada, "team", ben, "writer")
    await add_member(sharing, ada, "team", cy, "writer")
    first = await sharing.create_share(ben.id, RECIPES, "cy")
    second = await sharing.create_share(ben.id, RECIPES, "team")

    assert [one.id for one in await sharing.list_shares(ada.id)] == [second.id]
    with pytest.raises(NotFound):
        await sharing.delete_share(ada.id, first.id)
    with pytest.raises(RoleNeeded):
        await sharing.delete_share(cy.id, second.id)
    await sharing.delete_share(cy.id, first.id)
    await sharing.delete_share(ada.id, second.id)
    third = await sharing.create_share(ben.id, RECIPES, "team")
    await sharing.delete_share(ben.id, third.id)
    assert await sharing.list_shares(None) == []
    with pytest.raises(NotFound):
        await sharing.delete_share(ben.id, third.id)


async def test_group_always_has_a_manager(registry: Registry, sharing: Sharing) -> None:
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    await sharing.create_group(ada.id, "team")
    await add_member(sharing, ada, "team", ben)

    for attempt in (
        sharing.remove_member(ada.id, "team", "ada"),
        sharing.set_role(ada.id, "team", "ada", "writer"),
    ):
        with pytest.raises(Conflict, match="needs a manager"):
            await attempt
    await sharing.set_role(ada.id, "team", "ben", "manager")
    await registry.disable_user(ben.id)
    with pytest.raises(Conflict, match="needs a manager"):
        await sharing.remove_member(ada.id, "team", "ada")
    await registry.enable_user(ben.id)
    await sharing.remove_member(ada.id, "team", "ada")
    assert await names(sharing, ada) == []


async def test_who_leaves_takes_along_what_they_shared_with_the_group(registry: Registry, sharing: Sharing) -> None:
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    await sharing.create_group(ada.id, "team")
    await add_member(sharing, ada, "team", ben)
    await sharing.create_share(ben.id, RECIPES, "team")
    assert await names(sharing, ada) == ["team", "ben/recipes"]

    await sharing.remove_member(ben.id, "team", "ben")

    assert (await names(sharing, ada), await names(sharing, ben)) == (["team"], [])


# Invitations


async def test_link_is_used_once_or_as_often_as_it_says(registry: Registry, sharing: Sharing) -> None:
    ada, ben, cy, dee = [await registry.add_user(name) for name in ("ada", "ben", "cy", "dee")]
    await sharing.create_group(ada.id, "team")
    _, once = await sharing.invite(ada.id, "team", "writer")
    _, twice = await sharing.invite(ada.id, "team", "reader", uses=2)

    assert (await sharing.find_link(once)).group == "team"
    assert (await sharing.accept(ben.id, once)).role == "writer"
    for user in (ben, cy):
        with pytest.raises(InvitationNotValid):
            await sharing.accept(user.id, once)
    # Who is in the group already gets no other role, and uses nothing up.
    with pytest.raises(Conflict, match="already a member"):
        await sharing.accept(ben.id, twice)
    await sharing.accept(cy.id, twice)
    await sharing.accept(dee.id, twice)
    assert await sharing.list_invitations(ada.id, "team") == []
    assert {one.name: one.role for one in await sharing.list_members(ada.id, "team")} == {
        "ada": "manager",
        "ben": "writer",
        "cy": "reader",
        "dee": "reader",
    }


async def test_named_invitation_is_for_that_person_only(registry: Registry, sharing: Sharing) -> None:
    ada, ben, cy = [await registry.add_user(name) for name in ("ada", "ben", "cy")]
    await sharing.create_group(ada.id, "team")
    first, secret = await sharing.invite(ada.id, "team", "reader", "ben")
    invitation, _ = await sharing.invite(ada.id, "team", "writer", "ben")

    assert secret == ""
    # The later one replaced the earlier one.
    assert await sharing.incoming_invitations(ben.id) == [invitation]
    assert await sharing.incoming_invitations(cy.id) == []
    for user, text in ((cy, invitation.id), (ben, first.id), (ben, "i_unknown"), (ben, "")):
        with pytest.raises(InvitationNotValid):
            await sharing.accept(user.id, text)
    assert await names(sharing, ben) == []
    await sharing.decline(ben.id, invitation.id)
    with pytest.raises(InvitationNotValid):
        await sharing.accept(ben.id, invitation.id)
    for name in ("nobody", "team"):
        with pytest.raises(NotFound):
            await sharing.invite(ada.id, "team", "reader", name)


async def test_invitation_ends_with_its_time_its_group_its_sender_and_the_access_of_the_invited(
    registry: Registry, sharing: Sharing, clock: FakeClock
) -> None:
    ada, ben, cy = [await registry.add_user(name) for name in ("ada", "ben", "cy")]
    for number in range(5):
        await sharing.create_group(ada.id, f"g{number}")
        await add_member(sharing, ada, f"g{number}", cy, "manager")
    links = [(await sharing.invite(cy.id, f"g{number}", "reader"))[1] for number in range(5)]

    await sharing.close_group(ada.id, "g0")
    await sharing.close_group(ada.id, "g1")
    await sharing.delete_group((await sharing.close_group(ada.id, "g1")).id)
    await sharing.set_role(ada.id, "g2", "cy", "writer")
    await sharing.remove_member(ada.id, "g3", "cy")
    for link in links[:4]:
        with pytest.raises(InvitationNotValid):
            await sharing.accept(ben.id, link)
    await registry.disable_user(ben.id)
    with pytest.raises(InvitationNotValid):
        await sharing.accept(ben.id, links[4])
    await registry.enable_user(ben.id)
    clock.advance(INVITATION_TTL_S)
    with pytest.raises(InvitationNotValid):
        await sharing.accept(ben.id, links[4])
    assert await names(sharing, ben) == []


async def test_revoked_invitation_cannot_be_used(registry: Registry, sharing: Sharing) -> None:
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    await sharing.create_group(ada.id, "team")
    await sharing.create_group(ada.id, "crew")
    invitation, secret = await sharing.invite(ada.id, "team", "reader")

    with pytest.raises(NotFound):
        await sharing.revoke_invitation(ada.id, "crew", invitation.id)
    await sharing.revoke_invitation(ada.id, "team", invitation.id)
    with pytest.raises(InvitationNotValid):
        await sharing.accept(ben.id, secret)


# Credentials


async def test_each_change_applies_to_the_next_call_of_a_key(
    registry: Registry, sharing: Sharing, authenticator: RegistryAuthenticator
) -> None:
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    _, secret = await registry.create_key(ben.id, "laptop", [READ, WRITE])
    opened = await authenticator.authenticate(f"Bearer {secret}")

    async def current() -> list[tuple[str, str]]:
        """What the next call may use, and the next call on a connection that was opened before."""
        principal = await authenticator.authenticate(f"Bearer {secret}")
        assert (await authenticator.recheck(opened)).libraries == principal.libraries
        return [(one.name, one.role) for one in principal.libraries]

    assert await current() == []
    await sharing.create_group(ada.id, "team")
    await add_member(sharing, ada, "team", ben, "writer")
    assert await current() == [("team", "writer")]
    share = await sharing.create_share(ada.id, RECIPES, "ben")
    assert await current() == [("team", "writer"), ("ada/recipes", "reader")]
    await sharing.set_role(ada.id, "team", "ben", "reader")
    assert await current() == [("team", "reader"), ("ada/recipes", "reader")]
    await sharing.delete_share(ada.id, share.id)
    assert await current() == [("team", "reader")]
    await sharing.remove_member(ben.id, "team", "ben")
    assert await current() == []
    await add_member(sharing, ada, "team", ben)
    assert await current() == [("team", "reader")]
    await sharing.close_group(ada.id, "team")
    assert await current() == []


async def test_what_a_person_shares_ends_with_the_time_of_their_account(
    registry: Registry, sharing: Sharing, authenticator: RegistryAuthenticator, clock: FakeClock
) -> None:
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    await registry.expire_user(ada.id, clock() + 100)
    await sharing.create_share(ada.id, RECIPES, "ben")
    _, secret = await registry.create_key(ben.id, "laptop", [READ])
    local = make_authenticator(make_settings(single_user_name="ben"), registry, clock)
    opened = await authenticator.authenticate(f"Bearer {secret}")
    assert [one.name for one in (await authenticator.recheck(opened)).libraries] == ["ada/recipes"]
    assert [one.name for one in (await local.authenticate(None)).libraries] == ["ada/recipes"]

    clock.advance(100)

    assert (await authenticator.recheck(opened)).libraries == ()
    assert (await authenticator.authenticate(f"Bearer {secret}")).libraries == ()
    assert (await local.authenticate(None)).libraries == ()


async def test_what_a_disabled_person_shares_cannot_be_read(registry: Registry, sharing: Sharing) -> None:
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    await sharing.create_share(ada.id, RECIPES, "ben")
    await registry.disable_user(ada.id)
    assert await names(sharing, ben) == []
    await registry.enable_user(ada.id)
    assert await names(sharing, ben) == ["ada/recipes"]


async def test_restricted_key_has_no_more_than_its_libraries(
    registry: Registry, sharing: Sharing, authenticator: RegistryAuthenticator
) -> None:
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    team, crew = await sharing.create_group(ada.id, "team"), await sharing.create_group(ada.id, "crew")
    for group in (team, crew):
        await add_member(sharing, ada, group.name, ben)
    _, for_team = await registry.create_key(ben.id, "team", [READ], libraries=[team.handle])
    _, for_own = await registry.create_key(ben.id, "own", [READ], libraries=[])
    _, for_guess = await registry.create_key(ben.id, "guess", [READ], libraries=["g_guessed", ada.id, "own"])

    async def principal(secret: str) -> Principal:
        return await authenticator.authenticate(f"Bearer {secret}")

    def handles(of: Principal) -> list[str]:
        return [one.handle for one in of.libraries]

    assert handles(await principal(for_team)) == [team.handle]
    assert handles(await principal(for_own)) == handles(await principal(for_guess)) == []
    # Such a key cannot make one that can do more.
    assert all([(await principal(secret)).is_for_agents for secret in (for_team, for_own)])

    await sharing.remove_member(ada.id, "team", "ben")
    assert handles(await principal(for_team)) == []
    await add_member(sharing, ada, "team", ben, "manager")
    assert handles(await principal(for_team)) == [team.handle]
    # A share that is made again is another one, which nobody has chosen for this key.
    share = await sharing.create_share(ada.id, RECIPES, "ben")
    _, for_share = await registry.create_key(ben.id, "share", [READ], libraries=[share.id])
    assert handles(await principal(for_share)) == [share.id]
    await sharing.delete_share(ada.id, share.id)
    await sharing.create_share(ada.id, RECIPES, "ben")
    assert handles(await principal(for_share)) == []


async def test_connected_application_has_the_libraries_that_the_person_chose(
    registry: Registry, sharing: Sharing, clock: FakeClock
) -> None:
    ada, settings = await registry.add_user("ada"), make_settings(require_auth=True)
    team = await sharing.create_group(ada.id, "team")
    await sharing.create_group(ada.id, "crew")
    grants, tokens = OAuthGrants(registry.database, settings, clock), OAuthTokens(registry.database, settings, clock)
    authenticator = RegistryAuthenticator(
        settings,
        registry,
        RateLimits.from_settings(settings, in_process_limits(clock)).failures,
        None,
        clock,
        clock,
        oauth_tokens=tokens,
    )

    async def connect(*libraries: str) -> Any:
        request = GrantRequest(
            user=ada,
            client_id="c_reader",
            client_name="Reader",
            redirect_uri=REDIRECT,
            resource=TokenResource(settings.resource_url, None),
            scopes=frozenset((READ,)),
            libraries=frozenset(libraries),
        )
        code = await grants.approve(request, CHALLENGE)
        by_code = TokenRequest(client_id="c_reader", redirect_uri=REDIRECT, code_verifier=VERIFIER)
        return await tokens.redeem(code, by_code)

    async def handles(token: str) -> list[str]:
        return [one.handle for one in (await authenticator.authenticate(f"Bearer {token}")).libraries]

    own, both = await connect(), await connect(team.handle)
    assert await handles(own.access_token) == []
    assert await handles(both.access_token) == [team.handle]
    refreshed = await tokens.refresh(both.refresh_token, TokenRequest(client_id="c_reader"))
    assert await handles(refreshed.access_token) == [team.handle]
    # A connection from before there were groups.
    await registry.database.write(lambda db: db.execute("UPDATE oauth_grants SET libraries = NULL").close())
    assert await handles(refreshed.access_token) == []


async def test_token_and_local_user_have_the_libraries_of_their_user(
    registry: Registry, sharing: Sharing, clock: FakeClock
) -> None:
    authenticator = make_authenticator(make_settings(jwt_secret=SECRET), registry, clock)
    open_server = make_authenticator(make_settings(single_user_name="ada"), registry, clock)
    ada = await registry.add_user("ada", subject="alice")
    bearer = f"Bearer {hs256().token()}"
    assert (await authenticator.authenticate(bearer)).libraries == ()
    assert (await open_server.authenticate(None)).libraries == ()

    await sharing.create_group(ada.id, "team")

    libraries = await sharing.libraries_of(ada.id)
    assert (await authenticator.authenticate(bearer)).libraries == libraries
    assert (await open_server.authenticate(None)).libraries == libraries
    assert (await authenticator.authenticate_operator("ada")).libraries == libraries
    # The operator works on the library of a group itself, which reaches nothing else.
    await sharing.create_share(ada.id, RECIPES, "team")
    of_group = await authenticator.authenticate_operator("team")
    assert (of_group.user_name, of_group.libraries) == ("team", ())


async def test_groups_in_tokens_are_memberships_until_a_newer_token_lacks_them(
    registry: Registry, sharing: Sharing, clock: FakeClock
) -> None:
    mapped = ("staff=team writer", "cn=ops,dc=x=team manager", "readers=crew")
    settings = make_settings(jwt_secret=SECRET, jwt_group_map=mapped)
    authenticator, issuer = make_authenticator(settings, registry, clock), hs256()
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben", subject="alice")
    for name in ("team", "crew", "manual"):
        await sharing.create_group(ada.id, name)
    await add_member(sharing, ada, "manual", ben)

    async def libraries(**claims: Any) -> list[tuple[str, str]]:
        clock.advance(1)
        token = issuer.token(iat=claims.pop("iat", clock()), **claims)
        principal = await authenticator.authenticate(f"Bearer {token}")
        return [(one.name, one.role) for one in principal.libraries]

    manual = ("manual", "reader")
    assert await libraries(groups=["staff", "others"]) == [manual, ("team", "writer")]
    with pytest.raises(Conflict, match="identity provider"):
        await sharing.set_role(ada.id, "team", "ben", "manager")
    assert await libraries(roles="cn=ops,dc=x", groups=["readers", "staff"]) == [
        ("crew", "reader"),
        manual,
        ("team", "manager"),
    ]
    revision = registry.database.revision()
    assert len(await libraries(roles="cn=ops,dc=x", groups=["readers"])) == 3
    assert registry.database.revision() == revision, "nothing changed, so nothing was written"
    ended_at = clock()
    assert await libraries() == [manual]
    # An older token, with which someone would come back.
    assert await libraries(groups=["staff"], iat=ended_at) == [manual]
    assert await libraries(groups=[["staff"], 7, "unknown"]) == [manual]
    assert await libraries(groups="staff") == [manual, ("team", "writer")]


async def test_group_whose_last_manager_an_identity_provider_removes_passes_to_a_member_it_knows_nothing_about(
    registry: Registry, sharing: Sharing, clock: FakeClock
) -> None:
    ada, ben, cy, dee = [await registry.add_user(name) for name in ("ada", "ben", "cy", "dee")]
    await sharing.create_group(ada.id, "team")
    manager: dict[str, GroupRole] = {"team": "manager"}
    await sharing.apply_claims(ben.id, ISSUER, {"team": "writer"}, 1.0)
    await sharing.apply_claims(dee.id, ISSUER, manager, 1.0)
    await add_member(sharing, ada, "team", cy)
    await sharing.remove_member(ada.id, "team", "ada")

    async def roles() -> dict[str, str]:
        return {one.name: one.role for one in await sharing.list_members(None, "team")}

    await sharing.apply_claims(dee.id, ISSUER, {"team": "writer"}, 2.0)
    assert await roles() == {"ben": "writer", "cy": "manager", "dee": "writer"}
    await sharing.apply_claims(dee.id, ISSUER, manager, 3.0)
    await sharing.set_role(dee.id, "team", "cy", "reader")
    await sharing.apply_claims(dee.id, ISSUER, {}, 4.0)
    assert await roles() == {"ben": "writer", "cy": "manager"}
    # With nobody else in it, the provider decides.
    await sharing.apply_claims(ben.id, ISSUER, manager, 5.0)
    await sharing.remove_member(ben.id, "team", "cy")
    await sharing.apply_claims(ben.id, ISSUER, {"team": "writer"}, 6.0)
    assert await roles() == {"ben": "writer"}


# Deletion of a person


async def test_group_passes_to_the_writer_who_joined_first(
    registry: Registry, sharing: Sharing, clock: FakeClock
) -> None:
    ada, ben, cy, dee = [await registry.add_user(name) for name in ("ada", "ben", "cy", "dee")]
    await sharing.create_group(ada.id, "team")
    await sharing.create_group(ada.id, "readers")
    await sharing.create_group(ada.id, "managed")
    for user, role in ((ben, "reader"), (cy, "writer"), (dee, "writer")):
        clock.advance(1)
        await add_member(sharing, ada, "team", user, role)
    await add_member(sharing, ada, "readers", dee)
    clock.advance(1)
    await add_member(sharing, ada, "readers", ben)
    await add_member(sharing, ada, "managed", ben, "manager")
    await add_member(sharing, ada, "managed", cy, "writer")
    await sharing.create_share(ada.id, RECIPES, "ben")

    assert await sharing.delete_person(ada.id) == {"readers": dee.id, "team": cy.id}

    roles = {one.name: one.role for one in await sharing.list_members(ben.id, "team")}
    assert roles == {"ben": "reader", "cy": "manager", "dee": "writer"}
    assert [one.role for one in await sharing.list_members(ben.id, "managed")] == ["manager", "writer"]
    assert await sharing.list_shares(None) == []


async def test_person_who_is_the_only_member_of_a_group_is_not_deleted(registry: Registry, sharing: Sharing) -> None:
    ada = await registry.add_user("ada")
    await sharing.create_group(ada.id, "team")
    assert [one.name for one in await sharing.sole_groups(ada.id)] == ["team"]

    with pytest.raises(Conflict, match="'team' has no other member"):
        await sharing.delete_person(ada.id)

    assert await registry.user_by_name("ada") is not None
    group = await sharing.close_group(ada.id, "team")
    await sharing.delete_group(group.id)
    assert await sharing.delete_person(ada.id) == {}
    assert await registry.list_owners() == []
