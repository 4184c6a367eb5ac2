"""Libraries that users of a `SourceFixture` share with each other."""

from typing import Any, Literal

from msgspec.structs import replace

from auth.context import LibraryAccess, ShareRule
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser, SourceFixture


def access_to(
    owner: LibraryUser,
    name: str = "Team",
    rule: ShareRule | None = None,
    role: Literal["reader", "writer", "manager"] = "reader",
    handle: str = "",
) -> LibraryAccess:
    """The whole library of a user, as if it was that of a group, or what a rule shares of it."""
    handle = handle or f"h-{name.lower()}"
    return LibraryAccess(handle=handle, name=name, owner_id=owner.context.user_id, role=role, rule=rule)


def with_libraries(user: LibraryUser, *libraries: LibraryAccess, **changes: Any) -> LibraryUser:
    principal = replace(user.context.principal, libraries=libraries, **changes)
    scopes = changes.get("scopes", user.context.scopes)
    return replace(user, context=replace(user.context, principal=principal, scopes=scopes))


async def open_sharing(api: RestClient) -> SourceFixture:
    """Ada and Ben on a whole server. Their calls go to its dispatcher directly, with the principal of a test."""
    runtime = api.server.runtime
    users = [await api.library_user(name) for name in ("ada", "ben")]
    ada, ben = (LibraryUser(user.name, user.dispatcher, user.libraries, user.context) for user in users)
    return SourceFixture(runtime.settings, runtime.dispatcher.catalog, runtime.dispatcher, runtime.libraries, ada, ben)
