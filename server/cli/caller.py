"""Runs operations for commands: in this process on the files, or on a server over REST. A command need not know which.

A command opens a caller for a user's library or for administration, and calls operations with their inputs.
"""

import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from msgspec import Struct, structs

from config.errors import InvalidParams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from auth.context import RequestContext
    from config.settings import Settings
    from server.cli.remote import RemoteApi
    from server.operations.operation import Operation
    from server.services import Services

Call = Callable[["Operation", Struct], Any]


@contextmanager
def library_caller(
    settings: "Settings",
    user: str | None,
    *,
    creates: bool = False,
    writes: bool = False,
    is_demo: bool = False,
    loads_model: bool = False,
    config: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Call]:
    """Yields a function that runs operations on the library of a user. On the files, `creates`, `writes` and `is_demo`
    are those of `open_local`; with `loads_model`, the model of semantic search is loaded before the first call, whose
    deadline is shorter than that can take. `config` are the options of the calls, as clients send them."""
    from server.cli.remote import library_server  # noqa: PLC0415 - not for `--help`

    if (server := library_server(settings, user)) is not None:
        yield lambda operation, request: call_server(server, operation, request, config)
        return
    from server.cli.local_library import open_local  # noqa: PLC0415 - not for `--help`

    @asynccontextmanager
    async def open_library() -> "AsyncIterator[tuple[Services, RequestContext]]":
        async with open_local(settings, user, creates=creates, writes=writes, is_demo=is_demo) as local:
            if loads_model:
                await local.semantic.load()
            yield local.services, structs.replace(local.context, config=config)

    yield from _local_call(open_library())


@contextmanager
def admin_caller(settings: "Settings", *, user: str | None = None, creates: bool = False) -> Iterator[Call]:
    """Yields a function that runs operations on users and keys. With `user`, they are about the account of that user,
    who has to be the owner of the credential on a server."""
    from server.cli.remote import remote_server, running_server  # noqa: PLC0415 - not for `--help`

    if (server := remote_server()) is not None:
        if user is not None:
            # A server shows and creates only the keys of the user of the credential.
            from server.operations.account import get_account  # noqa: PLC0415 - not for `--help`
            from server.operations.operation import NoArguments  # noqa: PLC0415 - not for `--help`

            name = call_server(server, get_account, NoArguments()).name
            if user != name:
                raise InvalidParams(f"USER: expected {name!r}, the user of the credential, got {user[:60]!r}")
        yield lambda operation, request: call_server(server, operation, request)
    elif (running := running_server(settings, user)) is not None:

        def call(operation: "Operation", request: Struct) -> Any:
            if operation.path:
                return call_server(running, operation, request)
            # What only commands can do needs nothing that the server has open.
            with _files_caller(settings, user, creates=creates) as call_on_files:
                return call_on_files(operation, request)

        yield call
    else:
        with _files_caller(settings, user, creates=creates) as call_on_files:
            yield call_on_files


@contextmanager
def _files_caller(settings: "Settings", user: str | None, *, creates: bool) -> Iterator[Call]:
    from server.cli import local_library  # noqa: PLC0415 - not for `--help`

    @asynccontextmanager
    async def open_registry() -> "AsyncIterator[tuple[Services, RequestContext]]":
        find_root = local_library.create_data_root if creates else local_library.require_data_root
        root = find_root(settings)
        # Access that a command withdraws has ended in all processes of the server when the command returns.
        async with local_library.open_services(settings, root, waits_for_servers=True) as (services, _):
            if user is None:
                yield services, local_library.operator_context(root)
            else:
                owner = await local_library.find_user(services.registry, user)
                yield services, await local_library.user_context(services.registry, owner, root)

    yield from _local_call(open_registry())


def _local_call(opened: "AbstractAsyncContextManager[tuple[Services, RequestContext]]") -> Iterator[Call]:
    import asyncio  # noqa: PLC0415 - not for `--help`

    with asyncio.Runner() as runner:
        services, context = runner.run(opened.__aenter__())

        def call(operation: "Operation", request: Struct) -> Any:
            return runner.run(_run(operation, context, services, request))

        try:
            yield call
        finally:
            runner.run(opened.__aexit__(*sys.exc_info()))


async def _run(operation: "Operation", context: "RequestContext", services: "Services", request: Struct) -> Any:
    return await operation.handler(context, services, request)


def call_server(
    server: "RemoteApi", operation: "Operation", request: Struct, config: Mapping[str, Any] = MappingProxyType({})
) -> Any:
    """Runs an operation on a server. The output is the same Struct as that of the handler."""
    path, locations = operation.public_path, operation.locations()
    query: dict[str, Any] = {"config": b64encode(msgspec.json.encode(dict(config))).decode()} if config else {}
    body: dict[str, Any] = {}
    for field in structs.fields(request):
        name, value = field.encode_name, getattr(request, field.name)
        if locations[name] == "path":
            path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
        elif value == field.default:
            continue
        elif locations[name] == "body":
            body[name] = msgspec.to_builtins(value)
        else:
            query[name] = str(value).lower() if isinstance(value, bool) else value
    content = server.request(operation.method, path, body if operation.has_body else None, query)
    return msgspec.json.decode(content, type=operation.response)


async def run_long(
    settings: "Settings",
    user: str | None,
    command: str,
    request: Mapping[str, Any] = MappingProxyType({}),
    show_progress: Callable[[Any], None] = lambda _: None,
    *,
    creates: bool = False,
) -> Any:
    """Runs one of `server.long_commands` on the library of a user: in the server that has the data directory, or on
    the files. Cancelling it ends the work, also in a server."""
    from server.cli.remote import LocalApi, library_server  # noqa: PLC0415 - not for `--help`

    if isinstance(server := library_server(settings, user), LocalApi):
        return await server.run(command, dict(request), show_progress)
    from server.cli.local_library import open_local  # noqa: PLC0415 - not for `--help`
    from server.long_commands import LONG_COMMANDS, run_work  # noqa: PLC0415 - not for `--help`

    input_type, start = LONG_COMMANDS[command]
    async with open_local(settings, user, creates=creates, writes=True) as local:
        work = start(local.context, local.services, msgspec.convert(request, input_type, strict=False))
        result = None
        async for event, value in run_work(work):
            if event == "progress":
                show_progress(value)
            else:
                result = value
    return result
