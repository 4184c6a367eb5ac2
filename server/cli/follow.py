"""`florilegium follow`: keeps a library current with folders, files, databases and URLs."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import convert, to_builtins

from auth.context import ADMIN
from auth.follows import Deployments, UserMapping, is_deployment_id
from auth.registry import Registry
from config.errors import FlorilegiumError, StorageError
from config.settings import Settings
from server.cli.caller import admin_caller, library_caller, run_long
from server.cli.lazy_group import NamedValue, SettingsOverrides
from server.cli.local_library import data_root, open_local, run_with_registry
from server.cli.options import group_option, library_options, load_for_change, owner_of
from server.cli.output import echo, pluralize, print_json, print_result, print_table, strip_control_characters
from server.cli.remote import remote_server
from server.following.deployments import DeploymentFolders, DeploymentUser, FollowedDeployment
from server.following.service import REPORT_FIELDS, run_source
from server.operations import follows
from server.operations.account import get_account
from server.operations.operation import ManagedLibraryRequest, NoArguments
from server.stores import control_location
from sources.following.state import SourceBusy, SyncReport
from sources.importers.registry import format_names

if TYPE_CHECKING:
    from server.following.status import FollowedSource

# `tldw ROOT` follows a deployment: the databases of all users of a tldw server. Deployments belong to no user, and
# their ids tell them apart from followed sources of users. The commands change records in the control database, and a
# server that runs reads these. `follow run` reads a source itself only if no server has the lock of the data directory.

_USERS_PER_PAGE = 1_000
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)?")
_UNITS = {None: 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
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


def _owner_and_group(user: str | None, library: str | None) -> tuple[str | None, str | None]:
    """Returns whose library a command uses, and the group that a request to a server names: its managers send it in
    their own name. On this machine, a group is used like a user."""
    owner = owner_of(user, library)
    return (user, library) if remote_server() is not None else (owner, None)


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
@group_option
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
    library: str | None,
    user: str | None,
    as_json: bool,
) -> None:
    """Follow PATH or URL: import it once and keep the library current with it while a server runs.

    `tldw ROOT` follows the databases of all users of a tldw server. ROOT is its folder `user_databases`.
    """
    settings = load_for_change(overrides)
    if root is not None:
        if location != "tldw" or format_name or write_back or user or library:
            options = "--format, --write-back, --library and --user"
            raise click.UsageError(f"expected PATH, URL, or `tldw ROOT` without {options}")
        request = follows.FollowDeploymentRequest(
            location=str(Path(root).absolute()),
            map=mapping or "id",
            user_name=user_name or "{id}",
            create_users=create_users,
            keep_deleted=keep_deleted,
            interval_s=every,
        )
        with admin_caller(settings, creates=True) as call:
            added: FollowedDeployment = call(follows.add_follow_deployment, request)
        if as_json:
            print_json(added)
            return
        echo(f"Following the tldw users in {strip_control_characters(added.location)} as {added.id}.")
        text = f"{added.followed:,} of {added.followed + added.not_followed:,} tldw users have a user here"
        echo(f"{text}; `florilegium follow show {added.id}` lists them." if added.problem else f"{text}.")
        echo("A running server reads them now. Without one, run `florilegium serve` or `florilegium follow run`.")
        return
    if mapping or user_name or create_users:
        raise click.UsageError("--map, --user-name and --create-users need `follow add tldw ROOT`")
    owner, group = _owner_and_group(user, library)
    source_request = follows.FollowRequest(
        group=group,
        # A server has another working directory.
        location=location if "://" in location else str(Path(location).absolute()),
        format=format_name,
        interval_s=every,
        keep_deleted=keep_deleted,
        write_back=write_back,
    )
    with library_caller(settings, owner, creates=True) as call:
        source: FollowedSource = call(follows.add_follow, source_request)
    if as_json:
        print_json({"id": source.id, "location": source.location})
        return
    echo(f"Following {strip_control_characters(source.location)} as {source.id}.")
    echo("A running server reads it now. Without one, run `florilegium serve` or `florilegium follow run`.")


@follow.command("list")
@group_option
@library_options
def list_(overrides: SettingsOverrides, library: str | None, user: str | None, as_json: bool) -> None:
    """List followed sources and whether they are current."""
    settings = overrides.load().settings
    deployments: Sequence[FollowedDeployment] = ()
    sources: Sequence[FollowedSource] = ()
    owner, group = _owner_and_group(user, library)
    if owner is None and group is None:
        with admin_caller(settings) as call:
            if remote_server() is None or ADMIN in call(get_account, NoArguments()).scopes:
                deployments = call(follows.list_follow_deployments, NoArguments()).deployments
    try:
        with library_caller(settings, owner) as call:
            sources = call(follows.list_follows, ManagedLibraryRequest(group=group)).follows
    except (click.UsageError, StorageError):
        # Deployments belong to no user, so that there need not be one.
        if not deployments:
            raise
    if as_json:
        print_json([*deployments, *sources])
        return
    if deployments:
        of_deployments = [
            (one.id, one.state, f"{one.followed:,}", f"{one.not_followed:,}", strip_control_characters(one.location))
            for one in deployments
        ]
        print_table(("ID", "STATE", "USERS", "NOT FOLLOWED", "LOCATION"), of_deployments)
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
    for follow_id, problem in [(one.id, one.problem) for one in deployments] + [
        (one.id, one.problem) for one in sources
    ]:
        if problem:
            echo(f"{follow_id}: {strip_control_characters(problem)}")
    if not sources and not deployments:
        echo("Nothing is followed; `florilegium follow add PATH` follows a folder or file.")


@follow.command()
@click.argument("follow_id", metavar="ID")
@group_option
@library_options
def show(overrides: SettingsOverrides, follow_id: str, library: str | None, user: str | None, as_json: bool) -> None:
    """Show the source ID with its conflicts and the files that could not be read, or a deployment with its users."""
    settings = overrides.load().settings
    users: list[DeploymentUser] = []
    if is_deployment_id(follow_id):
        with admin_caller(settings) as call:
            while True:
                request = follows.DeploymentRequest(id=follow_id, limit=_USERS_PER_PAGE, offset=len(users))
                shown = call(follows.get_follow_deployment, request)
                users += shown.users
                if len(shown.users) < _USERS_PER_PAGE:
                    break
        data = {**to_builtins(shown), "users": to_builtins(users)}
    else:
        owner, group = _owner_and_group(user, library)
        with library_caller(settings, owner) as call:
            data = to_builtins(call(follows.get_follow, follows.FollowIdRequest(id=follow_id, group=group)))
    if as_json:
        print_json(data)
        return
    for name, value in data.items():
        if name not in ("users", "problems") and value not in (None, ""):
            echo(f"{name.replace('_', ' ')}: {strip_control_characters(str(value))}")
    for problem in data.get("problems", ()):
        text = problem["problem"] or "edited in the library and changed in its source; the edit was kept"
        echo(strip_control_characters(f"{problem['file']}: {text}"))
    if "users" in data:
        rows = [
            (
                str(one.tldw_id),
                one.user or "-",
                one.state,
                f"{one.items:,}",
                strip_control_characters(one.problem) or "-",
            )
            for one in users
        ]
        print_table(("TLDW USER", "USER", "STATE", "ITEMS", "PROBLEM"), rows)


def _change_command(name: str, help_text: str, done: str) -> None:
    """Adds a command that changes the source or deployment ID and prints `done`."""

    @follow.command(name, help=help_text)
    @click.argument("follow_id", metavar="ID")
    @group_option
    @library_options
    def change(
        overrides: SettingsOverrides, follow_id: str, library: str | None, user: str | None, as_json: bool
    ) -> None:
        settings, is_paused = load_for_change(overrides), name == "pause"
        if is_deployment_id(follow_id):
            with admin_caller(settings) as call:
                if name == "remove":
                    call(follows.remove_follow_deployment, follows.DeploymentIdRequest(id=follow_id))
                else:
                    request = follows.UpdateDeploymentRequest(id=follow_id, paused=is_paused)
                    call(follows.update_follow_deployment, request)
        else:
            owner, group = _owner_and_group(user, library)
            with library_caller(settings, owner) as call:
                if name == "remove":
                    call(follows.remove_follow, follows.FollowIdRequest(id=follow_id, group=group))
                else:
                    update = follows.UpdateFollowRequest(id=follow_id, group=group, paused=is_paused)
                    call(follows.update_follow, update)
        state = done.partition(" ")[0].lower()
        print_result({"id": follow_id, "state": state}, done.format(id=follow_id), as_json=as_json)


_change_command("pause", "Stop following the source ID until it is resumed.", "Paused {id}.")
_change_command("resume", "Resume following the source ID.", "Resumed {id}.")
_change_command(
    "remove",
    "Stop following the source ID. Its items stay in the library.",
    "Removed {id}. Its items stay in the library.",
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
        # A deployment has many users, whose libraries are opened one after the other.
        if is_deployment:
            reports = asyncio.run(run_deployment_here(settings, str(follow_id)))
        else:
            answer = asyncio.run(run_long(settings, user, "follow-run", {"id": follow_id, "accept": accept}))
            reports = {name: _read_report(report) for name, report in answer.items()}
    except StorageError as error:
        if "is in use by" not in error.message:
            raise
        # The lock of the data directory is taken, by a server without a socket or by another command that writes. The
        # request in the control database has no place for the permission.
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
@group_option
@library_options
def resolve(
    overrides: SettingsOverrides,
    follow_id: str,
    file: str,
    keep: Any,
    library: str | None,
    user: str | None,
    as_json: bool,
) -> None:
    """Settle the conflicts of FILE, a name that `follow show` lists."""
    owner, group = _owner_and_group(user, library)
    request = follows.ResolveConflictRequest(id=follow_id, group=group, file=file, keep=keep)
    with library_caller(overrides.load().settings, owner, writes=True) as call:
        call(follows.resolve_follow_conflict, request)
    print_result({"id": follow_id, "file": file, "kept": keep}, f"Kept the version of the {keep}.", as_json=as_json)


# The server notices the request in the control database. A command cannot reach it otherwise.
def _request_runs(settings: Settings, user: str | None, follow_id: str | None) -> None:
    if follow_id is not None and is_deployment_id(follow_id):
        run_with_registry(settings, lambda registry: Deployments(registry.database).request_run(follow_id))
        return
    with library_caller(settings, user) as call:
        listed: Sequence[FollowedSource] = call(follows.list_follows, ManagedLibraryRequest()).follows
        for one in [follow_id] if follow_id else [source.id for source in listed if source.state != "paused"]:
            call(follows.run_follow, follows.FollowIdRequest(id=one))


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
