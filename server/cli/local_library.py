"""Opens a user's library on this machine without a server.

Access to the files is access to the library, so no credential is needed. If authentication is configured, the user must
be named.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, nullcontext
from pathlib import Path
from typing import TypeVar

import click
from msgspec import Struct, structs

from auth.audit import Audit, AuditEvent
from auth.authenticator import OPERATOR, local_principal, operator_principal
from auth.context import ClientId, LibraryAccess, RequestContext, build_context
from auth.oauth.grants import OAuthGrants
from auth.quotas import Quotas
from auth.registry import Registry, UserRecord
from auth.sharing import Sharing
from config.errors import Conflict, NotFound, StorageError
from config.paths import DataRoot
from config.settings import Settings
from server.directory_lock import locked_directory
from server.protocol.catalog import ChangeFeed
from server.services import Services, build_knowledge
from server.stores import control_location, open_audit_log, open_libraries
from sources.semantic.service import SemanticService
from sources.storage.contract import Libraries, Library

# -- admin -------------------------------------------------------------------------------------------------------------
# Access to the control database for administrative commands, which may run while a server uses it.

T = TypeVar("T")


def data_root(settings: Settings) -> DataRoot:
    return DataRoot(Path(settings.data_dir))


def require_data_root(settings: Settings) -> DataRoot:
    """Returns the data directory, which must exist.

    Commands that only read create nothing: an empty directory can still be restored into, and a mistyped path is
    reported instead of becoming a new, empty library.
    """
    root = data_root(settings)
    # The users are in PostgreSQL then, and this machine may never have had a data directory.
    if settings.storage_url:
        return create_data_root(settings)
    root.require_control()
    if not root.control_path.exists():
        raise StorageError(
            f"no data found in {root.root}; `florilegium import` or `florilegium user add` creates it, "
            "or set data_dir to another directory"
        )
    return root


def create_data_root(settings: Settings) -> DataRoot:
    root = data_root(settings)
    root.prepare()
    return root


def run_with_registry(settings: Settings, work: Callable[[Registry], Awaitable[T]], *, creates: bool = False) -> T:
    """Runs `work` with the open registry. With `creates`, the data directory is created if it does not exist."""

    async def run() -> T:
        root = create_data_root(settings) if creates else require_data_root(settings)
        # Access that a command withdraws has ended in all processes of the server when the command returns.
        async with Registry.open(control_location(settings, root), waits_for_servers=True) as registry:
            return await work(registry)

    return asyncio.run(run())


def record_operation(settings: Settings, action: str, user_id: str = "", target: str = "", detail: str = "") -> None:
    """Records in the audit log what the operator did. It is done even if that fails."""
    event = AuditEvent(time=time.time(), action=action, user_id=user_id, client=OPERATOR, target=target, detail=detail)
    try:
        with closing(open_audit_log(settings, data_root(settings))) as log:
            log.append([event])
    except StorageError as error:
        click.echo(f"warning: the audit log could not be written: {error.message}", err=True)


async def find_user(registry: Registry, name: str) -> UserRecord:
    """Returns a user, or a group: commands work on its library as on that of a person."""
    user = await registry.owner_by_name(name)
    if user is None:
        raise NotFound("user", name)
    return user


class LocalLibrary(Struct, frozen=True):
    """The library of one user on this machine, and the services that operations on it need."""

    services: Services
    semantic: SemanticService
    context: RequestContext
    user: UserRecord

    @property
    def settings(self) -> Settings:
        return self.services.settings

    @property
    def libraries(self) -> Libraries:
        return self.services.libraries

    def library(self) -> AbstractAsyncContextManager[Library]:
        return self.libraries.library(self.context)


@asynccontextmanager
async def open_local(
    settings: Settings, user_name: str | None, *, creates: bool = False, writes: bool = False, is_demo: bool = False
) -> AsyncIterator[LocalLibrary]:
    """Opens the library of a user. Creates a missing data directory or user only with `creates`. With `writes`, takes
    the lock of the data directory. With `is_demo`, creates and fills the demo library."""
    creates = creates or is_demo
    # A server for several users has no default user, and guessing one would open somebody's library.
    if user_name is None and settings.is_auth_configured:
        raise click.UsageError("--user is required because authentication is configured")
    root = create_data_root(settings) if creates else require_data_root(settings)
    # PostgreSQL is made for several processes.
    is_locked = writes and not settings.storage_url
    with locked_directory(root.root, command_name(), "writer") if is_locked else nullcontext():
        async with open_services(settings, root) as (services, semantic):
            user = await local_user(services.registry, settings, user_name, creates=creates)
            context = await user_context(services.registry, user, root)
            if is_demo:
                await fill_demo(services.libraries, context)
            yield LocalLibrary(services, semantic, context, user)


@asynccontextmanager
async def open_services(
    settings: Settings, root: DataRoot, *, waits_for_servers: bool = False
) -> AsyncIterator[tuple[Services, SemanticService]]:
    async with Registry.open(control_location(settings, root), waits_for_servers=waits_for_servers) as registry:
        # The quotas of a user apply on the command line, too.
        quotas, semantic = Quotas(registry.database, settings), SemanticService(settings)
        # Work in the background would end with the command; `florilegium embed` embeds.
        libraries = open_libraries(settings, root, semantic, quotas, embeds_in_background=False)
        audit = Audit(open_audit_log(settings, root), settings)
        try:
            yield (
                Services(
                    settings=settings,
                    data_root=root,
                    registry=registry,
                    libraries=libraries,
                    knowledge=build_knowledge(settings, libraries),
                    audit=audit,
                    quotas=quotas,
                    oauth_grants=OAuthGrants(registry.database, settings),
                    changes=ChangeFeed(),
                ),
                semantic,
            )
        finally:
            await libraries.close()
            await semantic.close()
            await audit.close()


def operator_context(root: DataRoot) -> RequestContext:
    return build_context(operator_principal(), root, OPERATOR, is_agent=False)


def command_name() -> str:
    """Returns the running command, such as `import`."""
    context = click.get_current_context(silent=True)
    return (context.info_name if context else None) or "command"


def local_context(user: UserRecord, root: DataRoot, libraries: tuple[LibraryAccess, ...] = ()) -> RequestContext:
    principal = structs.replace(
        local_principal(user), client_id=ClientId(OPERATOR), kind="operator", libraries=libraries
    )
    return build_context(principal, root, OPERATOR, is_agent=False)


async def user_context(registry: Registry, user: UserRecord, root: DataRoot) -> RequestContext:
    """Returns the context of a user with the libraries of others that the user may use."""
    return local_context(user, root, await Sharing(registry.database).libraries_of(user.id))


async def fill_demo(libraries: Libraries, context: RequestContext) -> None:
    from sources.demo import fill_once  # noqa: PLC0415 - only needed with --demo

    async with libraries.library(context) as library:
        await fill_once(library)


async def local_user(registry: Registry, settings: Settings, name: str | None, *, creates: bool = True) -> UserRecord:
    """Returns the named user, who must exist, or the single user, who is created on first use with `creates`."""
    if name is not None:
        user = await find_user(registry, name)
    elif creates:
        user = await single_user(registry, settings)
    elif (existing := await registry.user_by_name(settings.single_user_name)) is not None:
        user = existing
    else:
        missing = repr(settings.single_user_name)
        raise StorageError(f"the default user {missing} has no library yet; choose another user with --user")
    if user.is_disabled:
        raise Conflict(f"user {user.name!r} is disabled; run `florilegium user enable {user.name}`")
    return user


async def single_user(registry: Registry, settings: Settings) -> UserRecord:
    """Returns the user of callers without a credential, creating it if needed."""
    name = settings.single_user_name
    return await registry.user_by_name(name) or await registry.ensure_user("", name, role="admin", named_by="operator")
