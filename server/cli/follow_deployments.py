"""Followed deployments of tldw on the command line. Their ids tell them apart from followed sources of users."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from msgspec.structs import asdict

from auth.deployments import Deployment, Deployments, UserMapping
from auth.follows import FollowRecord
from auth.registry import Registry
from config.errors import FlorilegiumError
from config.settings import Settings
from server.cli.admin import data_root, record_operation, run_with_registry
from server.cli.local_library import open_local
from server.cli.output import print_json, print_table
from server.cli.terminal import echo, strip_control_characters
from server.following.deployment_status import FollowedDeployment, describe_deployment
from server.following.deployments import DeploymentFolders
from server.following.locations import allowed_deployment
from server.following.runs import run_source
from server.following.status import FollowedSource, describe
from server.stores import control_location
from sources.following.state import SyncReport

T = TypeVar("T")

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
        await folders.follow_new(deployment)
        return deployment, await describe_deployment(deployment, folders)

    deployment, described = run_with_registry(settings, work, creates=True)
    record_operation(settings, "follow.add", target=deployment.id, detail=deployment.location)
    if as_json:
        print_json(asdict(described))
        return
    echo(f"Following the tldw users in {strip_control_characters(deployment.location)} as {deployment.id}.")
    echo(_users_text(described))
    echo("A running server reads them now. Without one, run `florilegium serve` or `florilegium follow run`.")


def list_deployments(settings: Settings) -> list[FollowedDeployment]:
    async def work(registry: Registry) -> list[FollowedDeployment]:
        folders = DeploymentFolders(settings, registry)
        return [await describe_deployment(one, folders) for one in await Deployments(registry.database).list()]

    return run_with_registry(settings, work)


def print_deployments(deployments: list[FollowedDeployment]) -> None:
    rows = [
        (one.id, one.state, f"{one.followed:,}", f"{one.not_followed:,}", strip_control_characters(one.location))
        for one in deployments
    ]
    print_table(("ID", "STATE", "USERS", "NOT FOLLOWED", "LOCATION"), rows)
    for one in deployments:
        if one.problem:
            echo(f"{one.id}: {strip_control_characters(one.problem)}")


def show_deployment(settings: Settings, deployment_id: str, *, as_json: bool) -> None:
    """Shows every user of the deployment. Each library is opened for it."""

    async def describe_source(record: FollowRecord) -> FollowedSource | None:
        async with Registry.open(control_location(settings, data_root(settings))) as registry:
            user = await registry.user_by_id(record.user_id)
        if user is None or user.is_disabled:
            return None
        async with open_local(settings, user.name) as local, local.libraries.library(local.context) as library:
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
    _with_deployments(settings, lambda deployments: getattr(deployments, action)(deployment_id))
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
        async with (
            open_local(settings, user.name, writes=True) as local,
            local.libraries.library(local.context) as library,
        ):
            try:
                reports[f"tldw user {folder.name}"] = await run_source(library, record, user, settings)
            except FlorilegiumError as error:
                reports[f"tldw user {folder.name}"] = error
    return reports


def _with_deployments(settings: Settings, work: Callable[[Deployments], Awaitable[T]]) -> T:
    return run_with_registry(settings, lambda registry: work(Deployments(registry.database)))


def _users_text(described: FollowedDeployment) -> str:
    text = f"{described.followed:,} of {described.followed + described.not_followed:,} tldw users have a user here"
    return f"{text}; `florilegium follow show {described.id}` lists them." if described.problem else f"{text}."
