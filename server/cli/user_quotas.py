"""`florilegium user quota`: shows and sets the quotas of one user."""

from typing import Any

import click
from msgspec.structs import asdict, replace

from auth.quotas import QuotaOverrides, Quotas, UserLimits, describe_limits
from auth.registry import Registry, UserRecord
from server.cli.admin import find_user, load_for_change, record_change, run_with_registry
from server.cli.options import SettingsOverrides, json_option, setting_options
from server.cli.output import print_json, print_table
from server.cli.remote import RemoteApi, path_segment, remote_server

_DEFAULT = "default"
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
@json_option
@setting_options("data_dir")
def quota(overrides: SettingsOverrides, name: str, as_json: bool, **options: int | str | None) -> None:
    """Show the quotas of NAME, or set those that are named.

    0 means no quota, `default` the quota of the settings. A change applies from the next call on."""
    changes = {field: None if value == _DEFAULT else value for field, value in options.items() if value is not None}
    server = remote_server()
    if server is not None:
        limits, own = _remote_quotas(server, name, changes)
    else:
        limits, own = _local_quotas(overrides, name, changes)
    if as_json:
        print_json({**limits, "own": own})
        return
    rows = [
        (
            field,
            f"{limits[field]:,}" if limits[field] else "no quota",
            "settings" if own[field] is None else "this user",
        )
        for field in limits
    ]
    print_table(("QUOTA", "VALUE", "SET FOR"), rows)


def _remote_quotas(
    server: RemoteApi, name: str, changes: dict[str, Any]
) -> tuple[dict[str, int], dict[str, int | None]]:
    path = f"/api/v1/users/{path_segment(name)}/quotas"
    quotas = server.get(path)
    if changes:
        quotas = server.send("PUT", path, {**quotas["own"], **changes})
    own = quotas.pop("own")
    return quotas, {field: own.get(field) for field in quotas}


def _local_quotas(
    overrides: SettingsOverrides, name: str, changes: dict[str, Any]
) -> tuple[dict[str, int], dict[str, int | None]]:
    settings = load_for_change(overrides) if changes else overrides.load().settings

    async def work(registry: Registry) -> tuple[UserRecord, UserLimits, QuotaOverrides]:
        quotas, record = Quotas(registry.database, settings), await find_user(registry, name)
        if changes:
            await quotas.set(record.id, replace(await quotas.overrides(record.id), **changes))
        return record, await quotas.limits(record.id), await quotas.overrides(record.id)

    record, limits, own = run_with_registry(settings, work)
    if changes:
        record_change(settings, "quota.set", record, detail=describe_limits(limits))
    return asdict(limits), asdict(own)
