"""Export and deletion of all data of the caller."""

import hashlib
import hmac
import secrets
import shutil
import time
import zipfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from auth.context import ADMIN, WRITE, RequestContext
from auth.sharing import Sharing
from auth.tickets import StateKeys
from auth.tokens import UsedTokens
from config.errors import Conflict, InvalidParams, Overloaded
from config.paths import UserId
from config.times import format_time_seconds
from server.import_jobs import IMPORT_DEADLINE_S, UPLOADS_FOLDER
from server.operations.manage import Selection, selected_batches
from server.operations.operation import ManagedLibraryRequest, NoArguments, StreamedFile, account_operation, operation
from server.operations.sharing import managed_library
from server.operations.users import remove_user, require_group_choice
from server.runtime import Runtime
from sources.exporters.export import Selected, in_thread
from sources.exporters.export import export_library as write_export
from sources.storage.contract import ItemsChange
from sources.storage.job_queue import background_jobs

_ZIP = "application/zip"
_DISPOSITION = {"Content-Disposition": 'attachment; filename="florilegium-export.zip"'}
_BLOCK_BYTES = 1 << 16
_CONFIRMATION_S = 600.0
_DEADLINE_MS = round(IMPORT_DEADLINE_S * 1000)
# Exports of one user that are being made or read. Each is a copy of a library on the disk, for as long as its client
# takes to read it.
EXPORTS_MAX_PER_USER = 2
_EXPORT_RETRY_S = 60.0


class DeletionPreview(Struct, frozen=True, kw_only=True):
    """What would be deleted, and the token that confirms it. `groups` are those that have no other member."""

    items: int
    bytes: int
    groups: Sequence[str]
    token: str
    expires_at: str


class DeletionRequest(Struct, frozen=True, kw_only=True):
    token: Annotated[str, Meta(description="token of prepare_deletion.")]


class AccountDeletionRequest(DeletionRequest, frozen=True, kw_only=True):
    delete_groups: Annotated[
        bool, Meta(description="Also delete groups that have no other member, with their libraries.")
    ] = False


class DeletedData(Struct, frozen=True):
    items: int
    bytes: int


class DeletedAccount(Struct, frozen=True):
    """The account that does not exist any more."""

    name: str
    items: int
    bytes: int


class Confirmations:
    """Tokens that prove that a caller asked for a deletion shortly before. They are valid once, for one user, and until
    the server is restarted."""

    def __init__(self, keys: StateKeys, used: UsedTokens, clock: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._used = used
        self._clock = clock

    def issue(self, context: RequestContext) -> tuple[str, float]:
        expires_at = self._clock() + _CONFIRMATION_S
        text = f"{expires_at:.0f}.{secrets.token_hex(8)}"
        return f"{text}.{self._digests(context, text)[0]}", expires_at

    async def redeem(self, context: RequestContext, token: str) -> None:
        text, _, digest = token.rpartition(".")
        accepted = self._digests(context, text)
        is_genuine = any(hmac.compare_digest(digest.encode(), one.encode()) for one in accepted)
        # The time is read only from a text that this server signed. The token is used up last, by a valid request.
        is_valid = is_genuine and self._clock() < float(text.partition(".")[0])
        if not is_valid or not await self._used.use(token.encode(), _CONFIRMATION_S):
            raise InvalidParams("token: expected the token of prepare_deletion, which is valid once for ten minutes")

    def _digests(self, context: RequestContext, text: str) -> list[str]:
        # The epoch changes when all access of the user is withdrawn, which makes the token invalid, too.
        binding = f"{context.user_id} {context.principal.epoch} {text}".encode()
        return [hmac.new(key, binding, hashlib.sha256).hexdigest() for key in self._keys.for_purpose("deletion")]


@account_operation("GET /api/v1/export", response=_ZIP, deadline_ms=_DEADLINE_MS)
async def export_library(context: RequestContext, services: Runtime, request: ManagedLibraryRequest) -> StreamedFile:
    """Export your library

    Your whole library, or that of a group that you manage, as a zip of JSON lines and Markdown pages, as
    `florilegium export` writes it. It can be imported again.
    """
    caller, context = context.user_id, await managed_library(context, services, request.group)
    # Also contains human-only messages, unless the credential belongs to an agent.
    services.audit.record("export", context.user_id, client=context.client_id)
    return StreamedFile(_archive(context, services, caller), _ZIP, _DISPOSITION)


@operation(
    "POST /api/v1/items/selection/export",
    tools=("knowledge_get",),
    needs_all_sources=True,
    error_statuses=frozenset((404, 409)),
    response=_ZIP,
    deadline_ms=_DEADLINE_MS,
)
async def export_items(context: RequestContext, services: Runtime, request: Selection) -> StreamedFile:
    """Export many items

    A selection of items as a zip of JSON lines and Markdown pages, which can be imported again.
    """
    selected: dict[str, list[str | int]] = {}
    async with services.libraries.library(context) as library:
        _, batches = await selected_batches(context, services, request, ItemsChange())
        async for source, items in batches(library):
            selected.setdefault(source, []).extend(item.id for item in items)
    services.audit.record("export", context.user_id, client=context.client_id, detail="selection")
    return StreamedFile(_archive(context, services, context.user_id, selected), _ZIP, _DISPOSITION)


@account_operation("POST /api/v1/account/deletion", caller="unrestricted", scope=WRITE)
async def prepare_deletion(context: RequestContext, services: Runtime, _request: NoArguments) -> DeletionPreview:
    """Prepare the deletion of your data

    What delete_data would delete, and the token that it needs. Nothing is deleted yet.
    """
    async with services.libraries.library(context) as library:
        usage = await library.usage()
    token, expires_at = _confirmations(services).issue(context)
    groups = await Sharing(services.registry.database).sole_groups(context.user_id)
    return DeletionPreview(
        items=usage.items,
        bytes=usage.bytes,
        groups=[one.name for one in groups],
        token=token,
        expires_at=format_time_seconds(expires_at),
    )


@account_operation("DELETE /api/v1/account/data", caller="recent_sign_in", scope=WRITE, deadline_ms=_DEADLINE_MS)
async def delete_data(context: RequestContext, services: Runtime, request: DeletionRequest) -> DeletedData:
    """Delete all of your data

    Deletes your whole library and the record of its reads. This cannot be undone. Your account and your keys stay;
    backups keep what they contain. Needs a recent sign-in.
    """
    await _confirmations(services).redeem(context, request.token)
    async with services.libraries.library(context) as library:
        usage = await library.usage()
    # Running imports and followed sources would fill the library again.
    await services.forget_user(context.user_id)
    await services.libraries.remove(context.user_id)
    await services.audit.delete_reads(context.user_id)
    services.audit.record("data.delete", context.user_id, client=context.client_id)
    return DeletedData(usage.items, usage.bytes)


@account_operation(
    "DELETE /api/v1/account",
    caller="recent_sign_in",
    scope=WRITE,
    deadline_ms=_DEADLINE_MS,
    error_statuses=frozenset((409,)),
)
async def delete_account(context: RequestContext, services: Runtime, request: AccountDeletionRequest) -> DeletedAccount:
    """Delete your account

    Deletes your account with all keys and connections, and your whole library. This cannot be undone; backups keep what
    they contain. The last administrator cannot be deleted. What you share ends, and groups pass to another member;
    those that have none must be deleted, too. Needs a recent sign-in.
    """
    # The local user, and the last administrator, cannot delete their accounts: the server needs one.
    if context.principal.kind == "local":
        raise Conflict("the only user of this server cannot be deleted; delete the data instead")
    others = [user for user in await services.registry.list_users() if user.id != context.user_id]
    is_admin = context.principal.has_scope(ADMIN)
    if is_admin and not any(user.role == "admin" and not user.is_disabled for user in others):
        raise Conflict("you are the only administrator; give another user the role admin first")
    user = await services.registry.user_by_id(context.user_id)
    assert user is not None, "the caller exists"
    await require_group_choice(services, user, deletes_groups=request.delete_groups)
    await _confirmations(services).redeem(context, request.token)
    async with services.libraries.library(context) as library:
        usage = await library.usage()
    # The event is recorded last, under an id that no user has any more.
    await remove_user(context, services, user, purge=True, deletes_groups=request.delete_groups)
    services.audit.record("user.delete", user.id, client=context.client_id, target=user.id, detail="own")
    return DeletedAccount(user.name, usage.items, usage.bytes)


def _confirmations(services: Runtime) -> Confirmations:
    return Confirmations(services.stores.state_keys, services.stores.used_tokens)


async def _archive(
    context: RequestContext, services: Runtime, caller: UserId, selected: Selected | None = None
) -> AsyncIterator[bytes]:
    """Writes the export to the data directory, which is private, and sends it as a zip."""
    if services.exports[caller] >= EXPORTS_MAX_PER_USER:
        message = f"{EXPORTS_MAX_PER_USER} of your exports are running; try again when one of them has been read"
        raise Overloaded(message, _EXPORT_RETRY_S)
    # What a process that was killed leaves in this folder is removed at the next start.
    uploads = services.data_root.root / UPLOADS_FOLDER
    folder = uploads / secrets.token_hex(8)
    services.exports[caller] += 1
    try:
        await in_thread(uploads.mkdir, 0o700, exist_ok=True)
        await in_thread(folder.mkdir, 0o700)
        # Reading a whole library must not hold up the calls of others.
        with background_jobs():
            async with services.libraries.library(context) as library:
                await write_export(library, folder / "florilegium", selected)
        archive = await in_thread(_zip, folder)
        with archive.open("rb") as file:
            while block := await in_thread(file.read, _BLOCK_BYTES):
                yield block
    finally:
        try:
            await in_thread(shutil.rmtree, folder, ignore_errors=True)
        finally:
            services.exports[caller] -= 1
            if not services.exports[caller]:
                del services.exports[caller]


def _zip(folder: Path) -> Path:
    """Packs the export and deletes each file as soon as it is packed, so that the disk needs little more space."""
    archive = folder / "export.zip"
    with zipfile.ZipFile(archive, "x", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted((folder / "florilegium").rglob("*")):
            if path.is_file():
                packed.write(path, path.relative_to(folder).as_posix())
                path.unlink()
    return archive
