"""Profiles: named lists of tools, chosen by the address of a request or by the credential.

The profile of an address decides which tools are listed. A profile to which a credential is restricted also limits
which tools may be called. Names of tools that are not registered are skipped.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from auth.principal import Principal
from config.errors import FlorilegiumError, NotFound
from server.protocol.call import DEFAULT_PROFILE
from server.protocol.catalog import Catalog, Tool


class Profile(Struct, frozen=True, kw_only=True):
    """A profile. `entries` are pairs of listed name and tool name, in listing order.

    `includes_other_tools` appends the tools that no profile names, such as those of a third-party source.
    `has_resources` lets a credential restricted to this profile read resources and prompts.
    """

    name: str
    entries: tuple[tuple[str, str], ...] = ()
    instructions: str = ""
    includes_other_tools: bool = False
    has_resources: bool = False


EVERYTHING = Profile(name=DEFAULT_PROFILE, includes_other_tools=True, has_resources=True)


class UnknownProfile(NotFound):
    """Lists the known profiles; their names are public."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        FlorilegiumError.__init__(self, f"profile {name[:60]!r} not found; expected one of {', '.join(known)}")
        self.kind = "profile"
        self.identity = name


class ProfileTools(Struct, frozen=True):
    """The registered tools as one profile shows them: by listed name, and by every name that can be called."""

    listed: Mapping[str, Tool]
    callable: Mapping[str, Tool]

    def find(self, name: str) -> Tool | None:
        """Finds a tool by name. The dotted form, such as `knowledge.search`, is accepted everywhere."""
        return self.callable.get(name) or (self.callable.get(name.replace(".", "_")) if "." in name else None)


class Profiles:
    """The profiles of a server. `clients` maps names of legacy clients to profiles."""

    def __init__(self, profiles: Sequence[Profile] = (EVERYTHING,), clients: Mapping[str, str] | None = None) -> None:
        self._profiles = {profile.name: profile for profile in profiles}
        self._clients = {name.casefold(): profile for name, profile in (clients or {}).items()}
        self._named_tools = frozenset(tool for profile in profiles for _, tool in profile.entries)
        for profile_name in self._clients.values():
            self.get(profile_name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._profiles)

    def get(self, name: str) -> Profile:
        profile = self._profiles.get(name)
        if profile is None:
            raise UnknownProfile(name, self.names)
        return profile

    def choose(self, principal: Principal, address_profile: str | None, client_name: str = "") -> str:
        """Returns the profile of a request: the credential's own, else the address's, else the legacy client's."""
        if address_profile is not None:
            self.get(address_profile)
        name = principal.profile or address_profile or self._clients.get(client_name.casefold(), DEFAULT_PROFILE)
        return self.get(name).name

    def tools(self, name: str, catalog: Catalog) -> ProfileTools:
        profile = self.get(name)
        listed = {listed_as: catalog.tools[tool] for listed_as, tool in profile.entries if tool in catalog.tools}
        if profile.includes_other_tools:
            listed |= {name: tool for name, tool in catalog.tools.items() if name not in self._named_tools}
        return ProfileTools(listed, {**catalog.tools, **listed})

    def permits(self, principal: Principal, action: str) -> bool:
        """Returns whether a caller may use a tool or perform an action, over any transport.

        Only a profile to which the credential is restricted forbids anything.
        """
        if principal.profile is None:
            return True
        profile = self.get(principal.profile)
        is_named = any(action == tool for _, tool in profile.entries)
        return is_named or (profile.includes_other_tools and action not in self._named_tools)

    def permits_resources(self, principal: Principal) -> bool:
        """Returns whether a caller may read resources and prompts, which expose the same data as the tools."""
        return principal.profile is None or self.get(principal.profile).has_resources
