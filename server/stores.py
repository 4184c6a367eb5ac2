"""Where a deployment keeps its data: in SQLite files of the data directory, or in PostgreSQL (`storage_url`)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from auth.audit import AuditFile, AuditLog
from auth.postgres_audit import PostgresAuditLog
from auth.quotas import Quotas
from auth.registry import ControlLocation
from config.errors import ConfigurationError
from config.paths import DataRoot, UserId
from config.postgres.connection import ConnectionOptions
from config.settings import Settings

if TYPE_CHECKING:
    from sources.semantic.service import SemanticService
    from sources.storage.contract import Libraries


def control_location(settings: Settings, data_root: DataRoot) -> ControlLocation:
    return connection_options(settings) if settings.storage_url else data_root.control_path


def has_control_data(settings: Settings, data_root: DataRoot) -> bool:
    """Whether there may be users. The tables of PostgreSQL are created on first use."""
    return bool(settings.storage_url) or data_root.control_path.exists()


def open_audit_log(settings: Settings, data_root: DataRoot) -> AuditLog:
    if settings.storage_url:
        return PostgresAuditLog(connection_options(settings))
    return AuditFile(data_root.audit_path)


def open_libraries(
    settings: Settings,
    data_root: DataRoot,
    semantic: "SemanticService | None" = None,
    quotas: Quotas | None = None,
    *,
    embeds_in_background: bool = True,
) -> "Libraries":
    if not settings.storage_url:
        from sources.storage.sqlite import SqliteLibraries  # noqa: PLC0415 - commands that need no library start faster

        return SqliteLibraries(
            data_root, settings, semantic=semantic, quotas=quotas, embeds_in_background=embeds_in_background
        )
    from sources.storage.postgres import PostgresLibraries, PostgresOptions  # noqa: PLC0415 - as above

    options = PostgresOptions(
        **_connection_values(settings),
        connections=settings.postgres_connections,
        statement_timeout_ms=settings.postgres_statement_timeout_ms,
        lock_timeout_ms=settings.postgres_lock_timeout_ms,
        idle_timeout_ms=settings.postgres_idle_timeout_ms,
    )
    return PostgresLibraries(
        options, settings, semantic=semantic, quotas=quotas, embeds_in_background=embeds_in_background
    )


async def stored_bytes(settings: Settings, data_root: DataRoot, user_ids: Sequence[UserId]) -> Mapping[UserId, int]:
    """Returns how much each user stores."""
    libraries = open_libraries(settings, data_root)
    try:
        return await libraries.stored_bytes(user_ids)
    finally:
        await libraries.close()


def require_sqlite(settings: Settings, command: str, alternative: str) -> None:
    """Raises if the data is not in files. `alternative` says what to do then."""
    if settings.storage_url:
        reason = "works on SQLite files, but storage_url is set"
        raise ConfigurationError(f"`florilegium {command}` {reason}: {alternative}")


def connection_options(settings: Settings) -> ConnectionOptions:
    return ConnectionOptions(**_connection_values(settings))


def _connection_values(settings: Settings) -> dict[str, Any]:
    return {
        "url": settings.storage_url,
        "connect_timeout_s": settings.postgres_connect_timeout_s,
        "statement_cache": settings.postgres_statement_cache,
        "queries_max": settings.postgres_connection_max_queries,
        "lifetime_s": settings.postgres_connection_lifetime_s,
        "silence_max_s": settings.postgres_silence_max_ms / 1000,
    }
