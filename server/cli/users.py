"""`florilegium user`, `group` and `share`. `server/operations/users.py` and `sharing.py` declare further commands."""

import asyncio
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from msgspec import structs, to_builtins

from auth.context import Role
from config.errors import ConfigurationError, InvalidParams
from config.paths import DataRoot, is_user_id
from config.settings import Settings
from server.cli.caller import admin_caller, run_long
from server.cli.lazy_group import SettingsOverrides, json_option, setting_options
from server.cli.operation_commands import add_commands
from server.cli.options import admin_options, load_for_change
from server.cli.output import confirm, local_url, parse_expiry, pluralize, print_json, print_result, print_table
from server.cli.remote import admin_server, remote_server, settings_of_running_server
from server.directory_lock import locked_directory
from server.operations import users
from server.operations.operation import NoArguments

if TYPE_CHECKING:
    from server.operations.users import AccountLinkResponse, AdoptedLibrary, DemoAccount, User, UserList, UserQuotas

ROLE = click.Choice(get_args(Role))


@click.group()
def user() -> None:
    """Add, invite, list, disable and delete users."""


@click.group()
def group() -> None:
    """Create groups, whose members share a library, and invite people."""


@click.group()
def share() -> None:
    """Share a part of a library with others, for reading."""


add_commands(user, "users")
add_commands(group, "sharing")
add_commands(share, "sharing")


# -- quotas ------------------------------------------------------------------------------------------------------------

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


@user.command()
@click.argument("name")
@click.option("--max-bytes", type=_QUOTA, metavar="N", help="Size of the library, in bytes.")
@click.option("--max-items", type=_QUOTA, metavar="N", help="Number of items.")
@click.option("--import-max-bytes", type=_QUOTA, metavar="N", help="Size of an import, at most the setting.")
@click.option("--max-passages", type=_QUOTA, metavar="N", help="Number of passages with embeddings.")
@admin_options
def quota(overrides: SettingsOverrides, name: str, as_json: bool, **options: int | str | None) -> None:
    """Show the quotas of NAME, or set those that are named.

    0 means no quota, `default` the quota of the settings. A change applies from the next call on."""
    changes: Any = {
        field: None if value == _DEFAULT else value for field, value in options.items() if value is not None
    }
    with admin_caller(load_for_change(overrides) if changes else overrides.load().settings) as call:
        quotas: UserQuotas = call(users.get_quotas, users.UserRequest(name=name))
        if changes:
            # All quotas of the user are replaced, so that those that do not change are sent, too.
            own = structs.replace(quotas.own, **changes)
            quotas = call(users.set_quotas, users.QuotasRequest(name=name, **to_builtins(own)))
    limits: dict[str, Any] = to_builtins(quotas)
    if as_json:
        print_json(limits)
        return
    set_for_user = limits.pop("own")
    rows = [
        (field, f"{limit:,}" if limit else "no quota", "settings" if set_for_user[field] is None else "this user")
        for field, limit in limits.items()
    ]
    print_table(("QUOTA", "VALUE", "SET FOR"), rows)


# -- links -------------------------------------------------------------------------------------------------------------


@user.command()
@click.argument("name", default="")
@click.option("--role", type=ROLE, default="writer", show_default=True, help="What the user may do.")
@json_option
@setting_options("data_dir", "public_url")
def invite(overrides: SettingsOverrides, name: str, role: Role, as_json: bool) -> None:
    """Print a link with which someone creates an account, called NAME or as they choose."""
    with admin_caller(_load_for_link(overrides), creates=True) as call:
        link: AccountLinkResponse = call(users.invite_user, users.InviteRequest(role=role, name=name))
    _print_link(link, f"Send this link to {name or 'the new user'}", as_json)


@user.command("reset-password")
@click.argument("name")
@click.option("--remove-passkeys", is_flag=True, help="Also remove the passkeys of NAME at once, who has lost them.")
@json_option
@setting_options("data_dir", "public_url")
def reset_password(overrides: SettingsOverrides, name: str, remove_passkeys: bool, as_json: bool) -> None:
    """Print a link with which NAME sets a password. The present password is valid until then."""
    if remove_passkeys and remote_server() is not None:
        raise click.UsageError("--remove-passkeys works on the server's machine only")
    with admin_caller(_load_for_link(overrides)) as call:
        link: AccountLinkResponse = call(users.reset_password, users.UserRequest(name=name))
        if remove_passkeys:
            removed: int = call(users.remove_passkeys, users.UserRequest(name=name))
            click.echo(f"Removed {removed} passkeys of {name}.", err=True)
    _print_link(link, f"Send this link to {name}", as_json)


def _load_for_link(overrides: SettingsOverrides) -> Settings:
    settings = load_for_change(overrides)
    if remote_server() is None:
        settings = settings_of_running_server(settings)
    # The link would lead to a page that does not exist.
    if remote_server() is None and not (settings.is_auth_configured and settings.password_sign_in):
        raise ConfigurationError(
            "this server has no sign-in with passwords; set require_auth = true and password_sign_in = true"
        )
    return structs.replace(settings, public_url=settings.public_url or local_url(settings))


def _print_link(link: "AccountLinkResponse", sentence: str, as_json: bool) -> None:
    """The link goes to stdout, what it is to stderr, so that scripts can use the output."""
    if as_json:
        print_json(link)
        return
    click.echo(f"{sentence}. It can be used once, until {link.expires_at}:", err=True)
    click.echo(link.url)


@user.command()
@click.argument("name", default="reviewer")
@click.option("--expires", metavar="WHEN", default="30d", show_default=True, help="End of all access, as for keys.")
@json_option
@setting_options("data_dir", "public_url")
def demo(overrides: SettingsOverrides, name: str, expires: str, as_json: bool) -> None:
    """Create NAME for a reviewer: a password, a key and the demo library, until the account expires."""
    settings = _load_for_link(overrides)
    if remote_server() is not None:
        raise click.UsageError("this command works on the server's machine only")
    now = time.time()
    expires_at = parse_expiry("expires", expires, now)
    if expires_at <= now:
        raise InvalidParams("expires: expected a time in the future, got one in the past")
    with admin_caller(settings, creates=True) as call:
        request = users.DemoAccountRequest(name=name, expires_at=expires_at)
        account: DemoAccount = call(users.add_demo_account, request)
    asyncio.run(run_long(settings, name, "demo"))
    url = settings.public_url
    if as_json:
        print_json({"url": f"{url}/", "mcp": f"{url}/mcp", **to_builtins(account)})
        return
    click.echo(f"{name} has the demo library, until {account.expires_at}:\n")
    rows = {
        "Address": f"{url}/",
        "MCP": f"{url}/mcp",
        "Name": name,
        "Password": account.password,
        "API key": account.key,
    }
    click.echo("".join(f"    {label:9} {value}\n" for label, value in rows.items()))
    click.echo(f"Delete the account with `florilegium user delete {name} --purge`.")


@user.command("adopt-local")
@click.argument("name")
@admin_options
def adopt_local(overrides: SettingsOverrides, name: str, as_json: bool) -> None:
    """Give NAME the library of the single user, whose name is the setting single_user_name.

    For a server that had one user and has accounts now. NAME must have an empty library.
    """
    settings = load_for_change(overrides)
    root = Path(settings.data_dir)
    # A running server closes both libraries. Otherwise nothing else may open them meanwhile.
    is_alone = admin_server(settings) is None and root.is_dir() and not settings.storage_url
    with (
        locked_directory(root, "user adopt-local", "maintenance") if is_alone else nullcontext(),
        admin_caller(settings) as call,
    ):
        if is_alone:
            DataRoot(root).undo_moves()
        adopted: AdoptedLibrary = call(users.adopt_local, users.UserRequest(name=name))
    items = pluralize(adopted.items, "items")
    print_result(adopted, f"{name} has the library of {adopted.former_user} now: {items}.", as_json=as_json)


# -- list and delete ---------------------------------------------------------------------------------------------------


@user.command("list")
@admin_options
def list_users(overrides: SettingsOverrides, as_json: bool) -> None:
    """List all users."""
    with admin_caller(overrides.load().settings) as call:
        listed: UserList = call(users.list_users, NoArguments())
    if as_json:
        print_json(listed.users)
        return
    rows = []
    for one in listed.users:
        share = f" ({one.bytes / one.max_bytes:.0%})" if one.max_bytes else ""
        about = (one.name, one.id, one.state, one.role, one.created_at, f"{one.bytes / 1_000_000:,.1f} MB{share}")
        rows.append((*about, one.subject, one.issuer or "-"))
    print_table(("NAME", "ID", "STATE", "ROLE", "CREATED", "USED", "SUBJECT", "ISSUER"), rows)


@user.command()
@click.argument("name")
@click.option("--purge", is_flag=True, help="Delete the user's databases too. This cannot be undone.")
@click.option("--delete-groups", is_flag=True, help="Also delete groups without other members, with their libraries.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@admin_options
def delete(overrides: SettingsOverrides, name: str, purge: bool, delete_groups: bool, yes: bool, as_json: bool) -> None:
    """Delete NAME and all keys of NAME; with --purge, also the databases.

    With --purge, NAME can also be the id of a deleted user, whose databases were kept.
    """
    with admin_caller(load_for_change(overrides)) as call:
        if purge and is_user_id(name) and remote_server() is None:
            if not yes:
                confirm(f"Delete the databases that are kept under the id {name}?")
            call(users.purge_kept_library, users.UserRequest(name=name))
            data = {"name": None, "id": name, "state": "deleted", "is_purged": True}
            print_result(data, f"No databases are kept under the id {name} any more.", as_json=as_json)
            return
        call(users.get_user, users.UserRequest(name=name))  # nobody is asked about a user who does not exist
        if not yes:
            confirm(f"Delete {name} and all keys{' and databases' if purge else ''} of {name}?")
        request = users.DeleteUserRequest(name=name, purge=purge, delete_groups=delete_groups)
        deleted: User = call(users.delete_user, request)
    kept = "" if purge else f" The databases are kept under the id {deleted.id}."
    data = {"name": deleted.name, "id": deleted.id, "state": deleted.state, "is_purged": purge}
    print_result(data, f"Deleted {name}.{kept}", as_json=as_json)
