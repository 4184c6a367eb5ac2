"""The services that operations work with. A command has them without a server, and a server has more (`Runtime`)."""

from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from aggregator.fanout import SearchQueue
from aggregator.retrieval import Retriever
from aggregator.search import Aggregator
from aggregator.similar import SimilarItems
from auth.audit import Audit
from auth.oauth.grants import OAuthGrants
from auth.quotas import Quotas
from auth.registry import Registry
from config.errors import InvalidParams
from config.paths import DataRoot, UserId
from config.settings import Settings
from server.protocol.catalog import ChangeFeed
from sessions.state import SessionStates
from sources.source import Source
from sources.storage.contract import Libraries

T = TypeVar("T")


class Knowledge(Struct, frozen=True, kw_only=True):
    """The services that search and read libraries, shared by all transports."""

    sources: Sequence[Source]
    session_states: SessionStates
    aggregator: Aggregator
    retriever: Retriever
    similar: SimilarItems


class Services(Struct, frozen=True, kw_only=True):
    """What most operations need. A command has these without a server."""

    settings: Settings
    data_root: DataRoot
    registry: Registry
    libraries: Libraries
    knowledge: Knowledge
    audit: Audit
    quotas: Quotas
    oauth_grants: OAuthGrants
    changes: ChangeFeed

    async def forget_user(self, user_id: UserId) -> None:
        """Ends what a server does for a user whose library is deleted."""

    async def run_in_background(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Runs work that a request need not wait for. A server returns None at once; a command waits."""
        return await work


def build_knowledge(settings: Settings, libraries: Libraries, session_states: SessionStates | None = None) -> Knowledge:
    """Without `session_states`, they are kept in this process."""
    from server.stores import in_process_stores  # noqa: PLC0415 - as below
    from sources.registry import load_sources  # noqa: PLC0415 - most commands do not need the sources

    sources = load_sources(settings)
    session_states = session_states or in_process_stores(settings).session_states
    retriever, queue = Retriever(libraries, sources, session_states), SearchQueue(settings)
    return Knowledge(
        sources=sources,
        session_states=session_states,
        aggregator=Aggregator(libraries, sources, session_states, settings, queue=queue),
        retriever=retriever,
        similar=SimilarItems(libraries, sources, retriever, settings, queue),
    )


def require_known_sources(settings: Settings, names: Iterable[str]) -> None:
    """Raises InvalidParams for a name that no source has. Loads the sources only if a name is given."""
    requested = tuple(names)
    if not requested:
        return
    from sources.registry import load_sources  # noqa: PLC0415 - most commands do not need the sources

    known = [source.name for source in load_sources(settings)]
    unknown = next((name for name in requested if name not in known), None)
    if unknown is not None:
        raise InvalidParams(f"sources: expected one of {', '.join(known)}, got {unknown[:40]!r}")
