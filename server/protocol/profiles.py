"""Which of the registered tools a client is shown: a profile is a list of names, chosen by address or credential.

An address shapes what is listed; a profile bound to a credential also limits what may be called. What a profile names
and nobody registered is left out.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from auth.principal import Principal
from config.errors import FlorilegiumError, NotFound
from server.protocol.call import DEFAULT
from server.protocol.catalog import Catalog, Tool


class Profile(Struct, frozen=True, kw_only=True):
    """`entries` are pairs of the name that is listed and the tool it stands for, in their order.

    With `takes_rest`, tools that no profile names follow: those of an extension or a third-party source. Only with
    `has_resources` may a credential that is bound to the profile read resources and prompts. What such a credential may
    do by REST though no tool amounts to it stands in `deeds`.
    """

    name: str
    entries: tuple[tuple[str, str], ...] = ()
    instructions: str = ""
    takes_rest: bool = False
    has_resources: bool = False
    deeds: frozenset[str] = frozenset()


EVERYTHING = Profile(name=DEFAULT, takes_rest=True, has_resources=True)


class UnknownProfile(NotFound):
    """Says which profiles there are; their names are no secret."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        FlorilegiumError.__init__(self, f"profile {name[:60]!r} not found; known profiles are {', '.join(known)}")
        self.kind = "profile"
        self.identity = name


class Surface(Struct, frozen=True):
    """One profile over what is registered: the tools by the names they are listed under, and by those that can be
    called there."""

    tools: Mapping[str, Tool]
    callable: Mapping[str, Tool]

    def find(self, name: str) -> Tool | None:
        """The dotted names of the seed documents (`knowledge.search`) are understood wherever the others are."""
        return self.callable.get(name) or (self.callable.get(name.replace(".", "_")) if "." in name else None)


class Profiles:
    """The profiles of a server, and which one a caller gets. `clients` maps names of legacy clients to profiles."""

    def __init__(self, profiles: Sequence[Profile] = (EVERYTHING,), clients: Mapping[str, str] | None = None) -> None:
        self._profiles = {profile.name: profile for profile in profiles}
        self._clients = {name.casefold(): profile for name, profile in (clients or {}).items()}
        self._named = frozenset(tool for profile in profiles for _, tool in profile.entries)
        for named in self._clients.values():
            self.get(named)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._profiles)

    def get(self, name: str) -> Profile:
        profile = self._profiles.get(name)
        if profile is None:
            raise UnknownProfile(name, self.names)
        return profile

    def choose(self, principal: Principal, named: str | None, client_name: str = "") -> str:
        """The credential's own profile, whatever the address says; else the one the address names; else, for a legacy
        client that is on the list, that client's."""
        if named is not None:
            self.get(named)
        return self.get(principal.profile or named or self._clients.get(client_name.casefold(), DEFAULT)).name

    def surface(self, name: str, catalog: Catalog) -> Surface:
        profile = self.get(name)
        tools = {listed: catalog.tools[tool] for listed, tool in profile.entries if tool in catalog.tools}
        if profile.takes_rest:
            tools |= {tool: found for tool, found in catalog.tools.items() if tool not in self._named}
        return Surface(tools, {**catalog.tools, **tools})

    def permits(self, principal: Principal, tool: str) -> bool:
        """Whether a caller may use that tool, by whichever door, or do that deed. Only a profile that is bound to the
        credential forbids any."""
        if principal.profile is None:
            return True
        profile = self.get(principal.profile)
        is_named = tool in profile.deeds or any(tool == entry for _, entry in profile.entries)
        return is_named or (profile.takes_rest and tool not in self._named)

    def permits_resources(self, principal: Principal) -> bool:
        """Resources and prompts hold what tools hold: to a caller bound to few tools they would be a way around."""
        return principal.profile is None or self.get(principal.profile).has_resources
