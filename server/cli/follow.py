"""`florilegium follow`: keeps a library current with folders, files, databases and URLs."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import convert
from msgspec.structs import asdict

from auth.follows import Deployment, Deployments, FollowRecord, Follows, UserMapping, is_deployment_id
from auth.registry import Registry, UserRecord
from config.errors import FlorilegiumError, InvalidParams, StorageError
from config.settings import Settings
from server.cli.lazy_group import NamedValue, SettingsOverrides
from server.cli.local_library import (
    LocalLibrary,
    data_root,
    local_user,
    open_local,
    record_change,
    record_operation,
    require_data_root,
    run_with_library,
    run_with_registry,
)
from server.cli.options import library_options, load_for_change
from server.cli.output import echo, pluralize, print_json, print_result, print_table, strip_control_characters
from server.cli.remote import LocalApi, library_server
from server.following.deployments import DeploymentFolders, FollowedDeployment, describe_deployment
from server.following.locations import allowed_deployment, allowed_location
from server.following.runs import REPORT_FIELDS, resolve_conflict, run_source
from server.following.status import FollowedSource, describe
from server.stores import control_location
from sources.following.state import SourceBusy, SyncReport
from sources.importers.registry import all_importers, format_names, importer_by_name
from sources.storage.contract import Library

# -- follow deployments ------------------------------------------------------------------------------------------------
# Followed deployments of tldw on the command line. Their ids tell them apart from followed sources of users.
# The commands work with and without a running server: they change records in the control database, and a server that
# runs reads these. `follow run` reads a source itself only if no server has the lock of the data directory.

# The command line shows all users of a deployment, each with one problem. REST has pages.
_USERS_MAX = 100_000
_PROBLEMS_MAX = 1


def add_deployment(
    settings: Settings,
    root: str,
    *,
    mapping: UserMapping,
    user_name: str,
    creates_users: bool,
    keeps_deleted: bool,
    interval_s: float | None,
    as_json: bool,
) -> None:
    location = allowed_deployment(settings, str(Path(root).absolute()))

    async def work(registry: Registry) -> tuple[Deployment, FollowedDeployment]:
        deployment = await Deployments(registry.database).add(
            location,
            mapping=mapping,
            user_name=user_name,
            creates_users=creates_users,
            keeps_deleted=keeps_deleted,
            interval_s=interval_s,
        )
        folders = DeploymentFolders(settings, registry)
        # Now instead of at the next scan, so that the answer says how many users were found.
        await folders.follow_new(deployment)
        return deployment, await describe_deployment(deployment, folders)

    deployment, described = run_with_registry(settings, work, creates=True)
    record_operation(settings, "follow.add", target=deployment.id, detail=deployment.location)
    if as_json:
        print_json(asdict(described))
        return
    echo(f"Following the tldw users in {strip_control_characters(deployment.location)} as {deployment.id}.")
    text = f"{described.followed:,} of {described.followed + described.not_followed:,} tldw users have a user here"
    echo(f"{text}; `florilegium follow show {described.id}` lists them." if described.problem else f"{text}.")
    echo("A running server reads them now. Without one, run `florilegium serve` or `florilegium follow run`.")


def show_deployment(settings: Settings, deployment_id: str, *, as_json: bool) -> None:
    """Shows every user of the deployment. Each library is opened for it."""

    # What was read of a source is in the library of its user. That of a disabled user cannot be opened.
    async def describe_source(record: FollowRecord) -> FollowedSource | None:
        async with Registry.open(control_location(settings, data_root(settings))) as registry:
            user = await registry.user_by_id(record.user_id)
        if user is None or user.is_disabled:
            return None
        async with open_local(settings, user.name) as local, local.library() as library:
            return await describe(record, library, _PROBLEMS_MAX)

    async def work(registry: Registry) -> FollowedDeployment:
        deployment = await Deployments(registry.database).get(deployment_id)
        folders = DeploymentFolders(settings, registry)
        return await describe_deployment(deployment, folders, describe_source, limit=_USERS_MAX)

    described = run_with_registry(settings, work)
    if as_json:
        print_json(asdict(described))
        return
    for name, value in asdict(described).items():
        if name != "users" and value not in (None, ""):
            echo(f"{name.replace('_', ' ')}: {strip_control_characters(str(value))}")
    rows = [
        (str(one.tldw_id), one.user or "-", one.state, f"{one.items:,}", strip_control_characters(one.problem) or "-")
        for one in described.users
    ]
    print_table(("TLDW USER", "USER", "STATE", "ITEMS", "PROBLEM"), rows)


def change_deployment(settings: Settings, deployment_id: str, action: str) -> None:
    """`action` is a method of `Deployments`."""
    run_with_registry(settings, lambda registry: getattr(Deployments(registry.database), action)(deployment_id))
    record_operation(settings, f"follow.{action}", target=deployment_id)


async def run_deployment_here(settings: Settings, deployment_id: str) -> dict[str, SyncReport | FlorilegiumError]:
    """Reads the databases of all users of a deployment that are not paused, one after the other."""
    async with Registry.open(control_location(settings, data_root(settings))) as registry:
        deployment = await Deployments(registry.database).get(deployment_id)
        folders = DeploymentFolders(settings, registry)
        await folders.follow_new(deployment)
        found = await folders.find(deployment)
    reports: dict[str, SyncReport | FlorilegiumError] = {}
    for folder in found:
        user, record = folder.user, folder.record
        if user is None or record is None or user.is_disabled or record.paused_at is not None:
            continue
        # One library at a time is open, and a database that cannot be read does not keep the others from being read.
        async with open_local(settings, user.name, writes=True) as local, local.library() as library:
            try:
                reports[f"tldw user {folder.name}"] = await run_source(library, record, user, settings)
            except FlorilegiumError as error:
                reports[f"tldw user {folder.name}"] = error
    return reports


# -- follow sources ----------------------------------------------------------------------------------------------------

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)?")
_UNITS = {None: 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
# Of one source. A folder can have thousands of files that cannot be read.
_PROBLEMS_SHOWN = 100
_SERVER_RUNS = "A server is running and reads it now; `florilegium follow list` shows the result."
_BUSY = "Another process is reading it and will look again; `florilegium follow list` shows the result."


class Duration(click.ParamType[float]):
    """A duration such as 30s, 5m, 2h or 1d; a number alone means seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = _DURATION.fullmatch(str(value).strip().lower())
        if match is None or not float(match[1]):
            self.fail(f"expected a duration such as 30s, 5m, 2h or 1d, got {value!r}", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


@click.group()
def follow() -> None:
    """Keep a library current with folders, files, databases and URLs."""


@follow.command()
@click.argument("location", metavar="PATH|URL|tldw")
@click.argument("root", metavar="[ROOT]", required=False)
@click.option(
    "--format",
    "format_name",
    type=NamedValue(format_names()),
    help=f"Read all files as this format: {', '.join(format_names())}. Default: detect it by content.",
)
@click.option("--every", type=Duration(), metavar="DURATION", help="Time between two scans, such as 30s, 5m or 1h.")
@click.option("--keep-deleted", is_flag=True, help="Keep items whose files are deleted.")
@click.option("--write-back", is_flag=True, help="Write notes that are created or edited in Florilegium to the folder.")
@click.option(
    "--map",
    "mapping",
    type=click.Choice(("id", "claim")),
    help="tldw only. id (default): a tldw user is the user with the same number as name, or as --user-name says. "
    "claim: the user whose tokens have that number as user claim.",
)
@click.option("--user-name", metavar="TEMPLATE", help="tldw only: names of users, such as tldw-{id}. Default: {id}.")
@click.option("--create-users", is_flag=True, help="tldw only: create users that do not exist.")
@library_options
def add(
    overrides: SettingsOverrides,
    location: str,
    root: str | None,
    format_name: str | None,
    every: float | None,
    keep_deleted: bool,
    write_back: bool,
    mapping: UserMapping | None,
    user_name: str | None,
    create_users: bool,
    user: str | None,
    as_json: bool,
) -> None:
    """Follow PATH or URL: import it once and keep the library current with it while a server runs.

    `tldw ROOT` follows the databases of all users of a tldw server. ROOT is its folder `user_databases`.
    """
    settings = load_for_change(overrides)
    if root is not None:
        if location != "tldw" or format_name or write_back or user:
            raise click.UsageError("expected PATH, URL, or `tldw ROOT` without --format, --write-back and --user")
        add_deployment(
            settings,
            root,
            mapping=mapping or "id",
            user_name=user_name or "{id}",
            creates_users=create_users,
            keeps_deleted=keep_deleted,
            interval_s=every,
            as_json=as_json,
        )
        return
    if mapping or user_name or create_users:
        raise click.UsageError("--map, --user-name and --create-users need `follow add tldw ROOT`")
    if format_name is not None:
        importer_by_name(format_name, all_importers())  # raises InvalidParams for an unknown name
    # A server has another working directory.
    place = location if "://" in location else str(Path(location).absolute())

    async def work(registry: Registry) -> tuple[FollowRecord, UserRecord]:
        owner, follows = await _owner(registry, settings, user), Follows(registry.database)
        # The operator may follow any folder: who runs this command can read the files anyway.
        others = await follows.list(owner.id)
        allowed = allowed_location(settings, place, owner, is_administrator=True, writes_back=write_back, others=others)
        record = await follows.add(
            owner.id,
            allowed,
            format_name=format_name,
            interval_s=every,
            keeps_deleted=keep_deleted,
            writes_back=write_back,
            per_user_max=settings.follow_max_per_user,
        )
        return record, owner

    record, owner = run_with_registry(settings, work, creates=True)
    record_change(settings, "follow.add", owner, record.id, record.location)
    if as_json:
        print_json({"id": record.id, "location": record.location})
        return
    echo(f"Following {strip_control_characters(record.location)} as {record.id}.")
    echo("A running server reads it now. Without one, run `florilegium serve` or `florilegium follow run`.")


@follow.command("list")
@library_options
def list_(overrides: SettingsOverrides, user: str | None, as_json: bool) -> None:
    """List followed sources and whether they are current."""
    settings = overrides.load().settings
    require_data_root(settings)

    async def find_deployments(registry: Registry) -> tuple[list[FollowedDeployment], bool]:
        folders = DeploymentFolders(settings, registry)
        found = [await describe_deployment(one, folders) for one in await Deployments(registry.database).list()]
        # Deployments belong to no user, so that there need not be one.
        has_default_user = (
            not settings.is_auth_configured and await registry.user_by_name(settings.single_user_name) is not None
        )
        return found, not found or has_default_user

    async def describe_all(library: Library, local: LocalLibrary) -> list[FollowedSource]:
        return [await describe(record, library) for record in await _records(settings, local)]

    deployments, has_sources = run_with_registry(settings, find_deployments) if user is None else ([], True)
    sources = run_with_library(settings, user, describe_all) if has_sources else []
    if as_json:
        print_json([asdict(source) for source in (*deployments, *sources)])
        return
    if deployments:
        of_deployments = [
            (one.id, one.state, f"{one.followed:,}", f"{one.not_followed:,}", strip_control_characters(one.location))
            for one in deployments
        ]
        print_table(("ID", "STATE", "USERS", "NOT FOLLOWED", "LOCATION"), of_deployments)
        _print_problems(deployments)
    if sources:
        rows = [
            (
                one.id,
                one.state,
                *(f"{count:,}" for count in (one.files, one.items, one.conflicts, one.failed)),
                one.changed_at or "-",
                strip_control_characters(one.location),
            )
            for one in sources
        ]
        print_table(("ID", "STATE", "FILES", "ITEMS", "CONFLICTS", "FAILED", "LAST CHANGE", "LOCATION"), rows)
        _print_problems(sources)
    elif not deployments:
        echo("Nothing is followed; `florilegium follow add PATH` follows a folder or file.")


def _print_problems(followed: Sequence[FollowedDeployment] | Sequence[FollowedSource]) -> None:
    for one in followed:
        if one.problem:
            echo(f"{one.id}: {strip_control_characters(one.problem)}")


@follow.command()
@click.argument("follow_id", metavar="ID")
@library_options
def show(overrides: SettingsOverrides, follow_id: str, user: str | None, as_json: bool) -> None:
    """Show the source ID with its conflicts and the files that could not be read, or a deployment with its users."""
    settings = overrides.load().settings
    if is_deployment_id(follow_id):
        show_deployment(settings, follow_id, as_json=as_json)
        return

    async def work(library: Library, local: LocalLibrary) -> FollowedSource:
        return await describe(await _record(settings, local, follow_id), library, _PROBLEMS_SHOWN)

    source = run_with_library(settings, user, work)
    if as_json:
        print_json(asdict(source))
        return
    for name, value in asdict(source).items():
        if name != "problems" and value not in (None, ""):
            echo(f"{name.replace('_', ' ')}: {strip_control_characters(str(value))}")
    for problem in source.problems:
        text = problem.problem or "edited in the library and changed in its source; the edit was kept"
        echo(strip_control_characters(f"{problem.file}: {text}"))


@follow.command()
@click.argument("follow_id", metavar="ID")
@library_options
def pause(overrides: SettingsOverrides, follow_id: str, user: str | None, as_json: bool) -> None:
    """Stop following the source ID until it is resumed."""
    _change(overrides, user, follow_id, "pause")
    print_result({"id": follow_id, "state": "paused"}, f"Paused {follow_id}.", as_json=as_json)


@follow.command()
@click.argument("follow_id", metavar="ID")
@library_options
def resume(overrides: SettingsOverrides, follow_id: str, user: str | None, as_json: bool) -> None:
    """Resume following the source ID."""
    _change(overrides, user, follow_id, "resume")
    print_result({"id": follow_id, "state": "resumed"}, f"Resumed {follow_id}.", as_json=as_json)


@follow.command()
@click.argument("follow_id", metavar="ID")
@library_options
def remove(overrides: SettingsOverrides, follow_id: str, user: str | None, as_json: bool) -> None:
    """Stop following the source ID. Its items stay in the library."""
    _change(overrides, user, follow_id, "remove")
    print_result(
        {"id": follow_id, "state": "removed"}, f"Removed {follow_id}. Its items stay in the library.", as_json=as_json
    )


@follow.command()
@click.argument("follow_id", metavar="[ID]", required=False)
@click.option("--accept", is_flag=True, help="Delete the items of missing files although the folder was replaced.")
@library_options
def run(overrides: SettingsOverrides, follow_id: str | None, accept: bool, user: str | None, as_json: bool) -> None:
    """Read the source ID, or all that are not paused, now. A running server does it, otherwise this command."""
    settings = overrides.load().settings
    is_deployment = follow_id is not None and is_deployment_id(follow_id)
    try:
        # A deployment has many users; the server is asked to read them, one after the other.
        if not is_deployment and isinstance(server := library_server(settings, user), LocalApi):
            answer = asyncio.run(server.run("follow-run", {"id": follow_id, "accept": accept}))
            reports = {name: _read_report(report) for name, report in answer.items()}
        else:
            reports = asyncio.run(_run_here(settings, user, follow_id, accepts_replacement=accept))
    except _ServerIsRunning:
        # The request in the control database has no place for the permission.
        if accept:
            raise StorageError("--accept needs the data directory for itself; stop the server first") from None
        _request_runs(settings, user, follow_id)
        echo(_SERVER_RUNS)
        return
    if not reports:
        echo("Nothing was read: there are no followed sources, or all of them are paused.", err=as_json)
    # Another process has the lease of the source: it looks again when it is done.
    for name in [name for name, report in reports.items() if isinstance(report, SourceBusy) and not accept]:
        del reports[name]
        _request_runs(settings, user, follow_id or name)
        echo(f"{name}: {_BUSY}", err=as_json)
    if as_json:
        print_json(
            {
                name: {"problem": report.message}
                if isinstance(report, FlorilegiumError)
                else {field: getattr(report, field) for field in REPORT_FIELDS}
                for name, report in reports.items()
            }
        )
    else:
        for name, report in reports.items():
            echo(f"{name}: {_report_text(report)}")
    is_complete = all(isinstance(report, SyncReport) and not report.failed for report in reports.values())
    click.get_current_context().exit(0 if is_complete else 1)


@follow.command()
@click.argument("follow_id", metavar="ID")
@click.argument("file")
@click.option(
    "--keep",
    type=click.Choice(("library", "file")),
    required=True,
    help="library: keep the edits made in Florilegium. file: overwrite them with the file.",
)
@library_options
def resolve(
    overrides: SettingsOverrides, follow_id: str, file: str, keep: str, user: str | None, as_json: bool
) -> None:
    """Settle the conflicts of FILE, a name that `follow show` lists."""
    settings = overrides.load().settings

    async def work(library: Library, local: LocalLibrary) -> None:
        record = await _record(settings, local, follow_id)
        await resolve_conflict(library, record, local.user, settings, file, keep=keep)

    if isinstance(server := library_server(settings, user), LocalApi):
        asyncio.run(server.run("follow-resolve", {"id": follow_id, "file": file, "keep": keep}))
    else:
        run_with_library(settings, user, work, writes=True)
    print_result({"id": follow_id, "file": file, "kept": keep}, f"Kept the version of the {keep}.", as_json=as_json)


class _ServerIsRunning(Exception):
    """Another process has the lock of the data directory."""


async def _record(settings: Settings, local: LocalLibrary, follow_id: str) -> FollowRecord:
    for record in await _records(settings, local):
        if record.id == follow_id:
            return record
    raise InvalidParams(f"ID: expected the id of a followed source, got {follow_id!r}")


# Which sources are followed is in the control database; what was read of each is in the library.
async def _records(settings: Settings, local: LocalLibrary) -> Sequence[FollowRecord]:
    async with Registry.open(control_location(settings, data_root(settings))) as registry:
        return await Follows(registry.database).list(local.context.user_id)


async def _owner(registry: Registry, settings: Settings, user: str | None) -> UserRecord:
    if user is None and settings.is_auth_configured:
        raise click.UsageError("--user is required because authentication is configured")
    return await local_user(registry, settings, user)


def _change(overrides: SettingsOverrides, user: str | None, follow_id: str, action: str) -> None:
    settings = load_for_change(overrides)
    if is_deployment_id(follow_id):
        change_deployment(settings, follow_id, action)
        return

    async def work(registry: Registry) -> UserRecord:
        owner = await _owner(registry, settings, user)
        await getattr(Follows(registry.database), action)(owner.id, follow_id)
        return owner

    record_change(settings, f"follow.{action}", run_with_registry(settings, work), follow_id)


# The server notices the request in the control database. A command cannot reach it otherwise.
def _request_runs(settings: Settings, user: str | None, follow_id: str | None) -> None:
    if follow_id is not None and is_deployment_id(follow_id):
        change_deployment(settings, follow_id, "request_run")
        return

    async def work(registry: Registry) -> None:
        owner, follows = await _owner(registry, settings, user), Follows(registry.database)
        records = await follows.list(owner.id)
        ids = [follow_id] if follow_id else [record.id for record in records if record.paused_at is None]
        for one in ids:
            await follows.request_run(owner.id, one)

    run_with_registry(settings, work)


async def _run_here(
    settings: Settings, user: str | None, follow_id: str | None, *, accepts_replacement: bool
) -> dict[str, SyncReport | FlorilegiumError]:
    reports: dict[str, SyncReport | FlorilegiumError] = {}
    try:
        if follow_id is not None and is_deployment_id(follow_id):
            return await run_deployment_here(settings, follow_id)
        async with open_local(settings, user, writes=True) as local:
            records = await _records(settings, local)
            chosen = [
                record for record in records if record.id == follow_id or (not follow_id and not record.paused_at)
            ]
            if follow_id and not chosen:
                raise InvalidParams(f"ID: expected the id of a followed source, got {follow_id!r}")
            async with local.library() as library:
                for record in chosen:
                    try:
                        reports[record.id] = await run_source(
                            library,
                            record,
                            local.user,
                            settings,
                            follows=[record.id for record in records],
                            accepts_replacement=accepts_replacement,
                        )
                    except FlorilegiumError as error:
                        reports[record.id] = error
    except StorageError as error:
        # The lock of the data directory is taken, by a server or by another command that writes.
        if "is in use by" in error.message:
            raise _ServerIsRunning from error
        raise
    return reports


def _read_report(data: Mapping[str, Any]) -> SyncReport | FlorilegiumError:
    """Reads a report of a server."""
    if "problem" not in data:
        return convert(data, SyncReport)
    return SourceBusy(data["problem"]) if data.get("is_busy") else FlorilegiumError(data["problem"])


def _report_text(report: SyncReport | FlorilegiumError) -> str:
    if isinstance(report, FlorilegiumError):
        return strip_control_characters(report.message)
    text = f"{pluralize(report.new, 'new items')}, {report.updated:,} updated, {report.deleted:,} deleted"
    conflicts = f", {pluralize(report.conflicts, 'conflicts')}" if report.conflicts else ""
    written = f", {pluralize(report.written, 'notes')} written to files" if report.written else ""
    failed = f", {pluralize(report.failed, 'files')} could not be read completely" if report.failed else ""
    return text + conflicts + written + failed
