"""`florilegium user`: manages users."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any, get_args

import click
from msgspec import Struct
from msgspec.structs import asdict, replace

from auth.accounts.passkeys import remove_all_passkeys
from auth.accounts.service import AccountLinks, NewLink
from auth.context import Role
from auth.quotas import QuotaOverrides, Quotas, UserLimits, describe_limits
from auth.registry import Registry, UserRecord, delete_from_copies
from config.errors import ConfigurationError, Conflict
from config.paths import UserId, is_user_id
from config.settings import Settings
from server.cli.lazy_group import SettingsOverrides, json_option, setting_options
from server.cli.local_library import (
    data_root,
    find_user,
    load_for_change,
    record_change,
    record_operation,
    run_with_registry,
)
from server.cli.options import admin_options
from server.cli.output import confirm, format_time, local_url, print_json, print_result, print_table
from server.cli.remote import path_segment, remote_server
from server.stores import open_audit_log, open_libraries, stored_bytes

# -- user quotas -------------------------------------------------------------------------------------------------------
# `florilegium user quota`: shows and sets the quotas of one user.

_DEFAULT = "default"
# JSON clients read larger numbers inexactly (RFC 8259 section 6).
_QUOTA_MAX = 2**53 - 1


class _QuotaValue(click.ParamType[int | str]):
    name = "quota"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == _DEFAULT:
            return _DEFAULT
        number = int(value) if str(value).isdecimal() else -1
        if not 0 <= number <= _QUOTA_MAX:
            self.fail(f"expected a number from 0 to {_QUOTA_MAX} or {_DEFAULT!r}, got {str(value)[:40]!r}", param, ctx)
        return number


_QUOTA = _QuotaValue()


@click.command()
@click.argument("name")
@click.option("--max-bytes", type=_QUOTA, metavar="N", help="Size of the library, in bytes.")
@click.option("--max-items", type=_QUOTA, metavar="N", help="Number of items.")
@click.option("--import-max-bytes", type=_QUOTA, metavar="N", help="Size of an import, at most the setting.")
@click.option("--max-passages", type=_QUOTA, metavar="N", help="Number of passages with embeddings.")
@admin_options
def quota(overrides: SettingsOverrides, name: str, as_json: bool, **options: int | str | None) -> None:
    """Show the quotas of NAME, or set those that are named.

    0 means no quota, `default` the quota of the settings. A change applies from the next call on."""
    changes = {field: None if value == _DEFAULT else value for field, value in options.items() if value is not None}
    limits: dict[str, Any]
    own: dict[str, Any]
    if (server := remote_server()) is not None:
        path = f"/api/v1/users/{path_segment(name)}/quotas"
        quotas = server.get(path)
        if changes:
            # PUT replaces all quotas of the user, so that those that do not change are sent, too.
            quotas = server.send("PUT", path, {**quotas["own"], **changes})
        own_limits = quotas.pop("own")
        limits, own = quotas, {field: own_limits.get(field) for field in quotas}
    else:
        settings = load_for_change(overrides) if changes else overrides.load().settings

        async def work(registry: Registry) -> tuple[UserRecord, UserLimits, QuotaOverrides]:
            quotas, record = Quotas(registry.database, settings), await find_user(registry, name)
            if changes:
                await quotas.set(record.id, replace(await quotas.overrides(record.id), **changes))
            return record, await quotas.limits(record.id), await quotas.overrides(record.id)

        record, effective, set_for_user = run_with_registry(settings, work)
        if changes:
            record_change(settings, "quota.set", record, detail=describe_limits(effective))
        limits, own = asdict(effective), asdict(set_for_user)
    if as_json:
        print_json({**limits, "own": own})
        return
    rows = [
        (field, f"{limit:,}" if limit else "no quota", "settings" if own[field] is None else "this user")
        for field, limit in limits.items()
    ]
    print_table(("QUOTA", "VALUE", "SET FOR"), rows)


ROLE = click.Choice(get_args(Role))
_USERS = "/api/v1/users"


@click.group()
def user() -> None:
    """Add, invite, list, disable and delete users."""


user.add_command(quota)


@user.command()
@click.argument("name")
@click.option("--issuer", default="", help="The `iss` of the user's tokens. Default: the configured issuer.")
@click.option("--subject", default="", help="The user claim (by default `sub`) of the user's tokens. Default: NAME.")
@click.option("--role", type=ROLE, default="writer", show_default=True, help="What the user may do.")
@admin_options
def add(overrides: SettingsOverrides, name: str, issuer: str, subject: str, role: Role, as_json: bool) -> None:
    """Add the user NAME."""
    if (server := remote_server()) is not None:
        body = {"name": name, "role": role, "issuer": issuer, "subject": subject}
        print_result(server.send("POST", _USERS, body), f"Added {name}.", as_json=as_json)
        return
    settings = load_for_change(overrides)
    record = run_with_registry(settings, lambda registry: registry.add_user(name, issuer, subject, role), creates=True)
    record_change(settings, "user.add", record, detail=role)
    print_result(
        _as_data(record),
        f"Added {record.name} ({record.id}). Create an API key with `florilegium key create {record.name}`.",
        as_json=as_json,
    )


@user.command()
@click.argument("name", default="")
@click.option("--role", type=ROLE, default="writer", show_default=True, help="What the user may do.")
@json_option
@setting_options("data_dir", "public_url")
def invite(overrides: SettingsOverrides, name: str, role: Role, as_json: bool) -> None:
    """Print a link with which someone creates an account, called NAME or as they choose."""
    sentence = f"Send this link to {name or 'the new user'}"
    if (server := remote_server()) is not None:
        _print_link(server.send("POST", "/api/v1/invitations", {"role": role, "name": name}), sentence, as_json)
        return
    settings = _load_for_link(overrides)
    link = run_with_registry(
        settings, lambda registry: AccountLinks(registry.database).create_invitation(role, name), creates=True
    )
    record_operation(settings, "user.invite", target=name, detail=role)
    _print_link(_link_data(settings, link), sentence, as_json)


@user.command("reset-password")
@click.argument("name")
@click.option("--remove-passkeys", is_flag=True, help="Also remove the passkeys of NAME at once, who has lost them.")
@json_option
@setting_options("data_dir", "public_url")
def reset_password(overrides: SettingsOverrides, name: str, remove_passkeys: bool, as_json: bool) -> None:
    """Print a link with which NAME sets a password. The present password is valid until then."""
    sentence = f"Send this link to {name}"
    if (server := remote_server()) is not None:
        if remove_passkeys:
            raise click.UsageError("--remove-passkeys works on the server's machine only")
        _print_link(server.send("POST", f"{_path(name)}/password-reset"), sentence, as_json)
        return
    settings = _load_for_link(overrides)

    async def work(registry: Registry) -> tuple[UserRecord, NewLink, int]:
        record = await find_user(registry, name)
        if record.is_disabled:
            raise Conflict(f"user {name!r} is disabled; run `florilegium user enable {name}` first")
        link = await AccountLinks(registry.database).create_reset(record)
        return record, link, await remove_all_passkeys(registry.database, record.id) if remove_passkeys else 0

    record, link, removed = run_with_registry(settings, work)
    record_change(settings, "user.reset_password", record)
    if remove_passkeys:
        record_change(settings, "passkey.remove", record, detail=f"all {removed}")
        click.echo(f"Removed {removed} passkeys of {name}.", err=True)
    _print_link(_link_data(settings, link), sentence, as_json)


@user.command()
@click.argument("name")
@click.argument("role", type=ROLE)
@admin_options
def role(overrides: SettingsOverrides, name: str, role: Role, as_json: bool) -> None:
    """Set what NAME may do: read (reader), also write (writer), also manage this server (admin).

    Keys and connections that NAME has lose the scopes that the role does not allow."""
    change = _Change("user.role", {"role": role}, lambda registry, user_id: registry.set_role(user_id, role), role)
    _change_user(overrides, name, change, f"{name} is now {role}.", as_json=as_json)


@user.command("confirm")
@click.argument("name")
@admin_options
def confirm_name(overrides: SettingsOverrides, name: str, as_json: bool) -> None:
    """Confirm a name that a person chose, so that folders named after NAME are theirs."""
    change = _Change("user.confirm", {"is_name_confirmed": True}, Registry.confirm_name)
    _change_user(overrides, name, change, f"Confirmed the name {name}.", as_json=as_json)


@user.command("list")
@admin_options
def list_users(overrides: SettingsOverrides, as_json: bool) -> None:
    """List all users."""
    if (server := remote_server()) is not None:
        users = server.get(_USERS)["users"]
        columns = ("name", "id", "role", "is_disabled", "created_at", "bytes")
        cells = [[str(one[column]) for column in columns] for one in users]
        print_json(users) if as_json else print_table([column.upper() for column in columns], cells)
        return
    settings = overrides.load().settings

    async def work(registry: Registry) -> list[tuple[UserRecord, int, int]]:
        quotas, records = Quotas(registry.database, settings), await registry.list_users()
        # The sizes of all users at once: with PostgreSQL they come from the database.
        sizes = await stored_bytes(settings, data_root(settings), [record.id for record in records])
        return [(record, sizes[record.id], (await quotas.limits(record.id)).max_bytes) for record in records]

    users = run_with_registry(settings, work)
    if as_json:
        print_json([{**_as_data(record), "bytes": size, "max_bytes": quota or None} for record, size, quota in users])
        return
    rows = []
    for record, size, max_bytes in users:
        share = f" ({size / max_bytes:.0%})" if max_bytes else ""
        used = f"{size / 1_000_000:,.1f} MB{share}"
        about = (record.name, record.id, _state(record), record.role, format_time(record.created_at) or "")
        rows.append((*about, used, record.subject, record.issuer or "-"))
    print_table(("NAME", "ID", "STATE", "ROLE", "CREATED", "USED", "SUBJECT", "ISSUER"), rows)


@user.command()
@click.argument("name")
@admin_options
def disable(overrides: SettingsOverrides, name: str, as_json: bool) -> None:
    """Revoke all access of NAME immediately. Existing keys, tokens and sessions stay invalid."""
    change = _Change("user.disable", {"is_disabled": True}, Registry.disable_user)
    note = " All keys, tokens and sessions are invalid."
    _change_user(overrides, name, change, f"Disabled {name}.", note, as_json=as_json)


@user.command()
@click.argument("name")
@admin_options
def enable(overrides: SettingsOverrides, name: str, as_json: bool) -> None:
    """Enable NAME again. NAME needs a new key or token."""
    change = _Change("user.enable", {"is_disabled": False}, Registry.enable_user)
    _change_user(overrides, name, change, f"Enabled {name}.", " A new key or token is needed.", as_json=as_json)


class _Change(Struct, frozen=True):
    """A change of a user: its action in the audit log, the fields for a remote server, and the local change."""

    action: str
    fields: dict[str, Any]
    apply: Callable[[Registry, UserId], Awaitable[UserRecord]]
    detail: str = ""


def _change_user(
    overrides: SettingsOverrides, name: str, change: _Change, sentence: str, note: str = "", *, as_json: bool
) -> None:
    """Changes a user on the server of `--server`, or on this machine, where `note` follows the sentence."""
    if (server := remote_server()) is not None:
        print_result(server.send("PATCH", _path(name), change.fields), sentence, as_json=as_json)
        return

    async def work(registry: Registry) -> UserRecord:
        return await change.apply(registry, (await find_user(registry, name)).id)

    settings = load_for_change(overrides)
    record = run_with_registry(settings, work)
    record_change(settings, change.action, record, detail=change.detail)
    print_result(_as_data(record), sentence + note, as_json=as_json)


@user.command()
@click.argument("name")
@click.option("--purge", is_flag=True, help="Delete the user's databases too. This cannot be undone.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@admin_options
def delete(overrides: SettingsOverrides, name: str, purge: bool, yes: bool, as_json: bool) -> None:
    """Delete NAME and all keys of NAME; with --purge, also the databases.

    With --purge, NAME can also be the id of a deleted user, whose databases were kept.
    """
    if (server := remote_server()) is not None:
        if not yes:
            confirm(f"Delete {name} and all keys{' and databases' if purge else ''} of {name}?")
        purged = "true" if purge else None
        print_result(server.send("DELETE", _path(name), purge=purged), f"Deleted {name}.", as_json=as_json)
        return
    settings = load_for_change(overrides)
    users = run_with_registry(settings, lambda registry: registry.list_users()) if purge else []
    if purge and is_user_id(name) and all(name not in (user.id, user.name) for user in users):
        if not yes:
            confirm(f"Delete the databases that are kept under the id {name}?")
        _purge_kept_library(settings, UserId(name), as_json)
        return
    record = run_with_registry(settings, lambda registry: find_user(registry, name))
    if not yes:
        confirm(f"Delete {name} and all keys{' and databases' if purge else ''} of {name}?")

    async def work(registry: Registry) -> None:
        if purge:
            # Disable access first, so that no call writes to the files being deleted. Delete the row last, so that a
            # deletion that failed halfway can be repeated.
            await registry.disable_user(record.id)
            await _delete_library(settings, record.id)
        await registry.delete_user(record.id)

    run_with_registry(settings, work)
    record_change(settings, "user.delete", record, record.id, "purged" if purge else "")
    if as_json:
        print_json({"name": record.name, "id": record.id, "state": "deleted", "is_purged": purge})
        return
    databases = "" if purge else f" The databases are kept under the id {record.id}."
    click.echo(f"Deleted {name}.{databases}")


# Databases of a user who was deleted without --purge are kept under an id that is in no table any more. In PostgreSQL
# they could otherwise be removed only by hand.
def _purge_kept_library(settings: Settings, user_id: UserId, as_json: bool) -> None:
    asyncio.run(_delete_library(settings, user_id))
    record_operation(settings, "user.delete", user_id, user_id, "purged")
    print_result(
        {"name": None, "id": user_id, "state": "deleted", "is_purged": True},
        f"No databases are kept under the id {user_id} any more.",
        as_json=as_json,
    )


async def _delete_library(settings: Settings, user_id: UserId) -> None:
    # The library, what copies of the control database from before migrations have of the user, and the log of reads.
    # Other events of the user stay in the audit log.
    root = data_root(settings)
    if settings.storage_url:
        libraries = open_libraries(settings, root)
        try:
            await libraries.remove(user_id)
        finally:
            await libraries.close()
    else:
        root.remove_user(user_id)
        delete_from_copies(root.control_path, user_id)
    with closing(open_audit_log(settings, root)) as log:
        log.delete_reads(user_id)


def _load_for_link(overrides: SettingsOverrides) -> Settings:
    settings = load_for_change(overrides)
    # The link would lead to a page that does not exist.
    if not settings.is_auth_configured or not settings.password_sign_in:
        raise ConfigurationError(
            "this server has no sign-in with passwords; set require_auth = true and password_sign_in = true"
        )
    return settings


def _link_data(settings: Settings, link: NewLink) -> dict[str, Any]:
    url = f"{settings.public_url or local_url(settings)}{link.path}"
    return {"url": url, "expires_at": format_time(link.expires_at)}


def _print_link(link: dict[str, Any], sentence: str, as_json: bool) -> None:
    """The link goes to stdout, what it is to stderr, so that scripts can use the output."""
    if as_json:
        print_json(link)
        return
    click.echo(f"{sentence}. It can be used once, until {link['expires_at']}:", err=True)
    click.echo(link["url"])


def _path(name: str) -> str:
    return f"{_USERS}/{path_segment(name)}"


def _state(record: UserRecord) -> str:
    return "disabled" if record.is_disabled else "active"


def _as_data(record: UserRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "id": record.id,
        "state": _state(record),
        "role": record.role,
        "named_by": record.named_by,
        "issuer": record.issuer,
        "subject": record.subject,
        "created_at": format_time(record.created_at),
        "disabled_at": format_time(record.disabled_at),
    }
