"""Deletes a user, with or without the library."""

from auth.registry import UserRecord, delete_from_copies
from server.runtime import Runtime


async def delete_user(runtime: Runtime, user: UserRecord, *, purge: bool) -> None:
    """Deletes the user and all keys, connections and sessions. With `purge`, also the databases; access ends first, so
    that no call writes to the files being deleted."""
    if purge:
        await runtime.registry.disable_user(user.id)
        await runtime.following.forget(user.id)
        await runtime.libraries.remove(user.id)
        if not runtime.settings.storage_url:
            delete_from_copies(runtime.data_root.control_path, user.id)
        await runtime.audit.delete_reads(user.id)
        await runtime.recent_calls.forget(user.id)
    await runtime.registry.delete_user(user.id)
