"""The names of the sources to which a credential can be restricted."""

from collections.abc import Iterable

from config.errors import InvalidParams
from config.settings import Settings


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
