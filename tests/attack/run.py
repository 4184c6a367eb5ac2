"""`make attack`: attacks a server of this machine for a few minutes and counts what got through.

1. Cross-tenant calls: two users and a stranger call every tool, route and protocol method with the ids, URIs, cursors,
   sessions, permalinks and import jobs of each other and of a third user, who sends nothing. Most calls go to the
   application in this process, because that is several times faster; the others over a socket.
2. Forged tokens, for every kind of issuer, and forged or altered OAuth tokens and codes.
3. Hostile and damaged files, imported over REST.
4. Hostile queries, to every tool that searches.
5. Slow and endless clients, over sockets.
6. Pipelined requests and large responses that are never read, while the memory of a server process is measured.
7. Roles: every REST operation and tool with every kind of credential, compared with what is declared.
8. Follows: paths outside `follow_roots`, links, former administrators, and followed sources of others.
9. Plugins: third-party sources that fail, hang, block or return false rows, while two users search.
10. Sharing: calls of a person whose memberships and shares change all the time.

Nothing leaves the loopback interface, every part has a time limit, and so has the whole. The exit code is 1 if anything
got through, if the server failed or took too much memory, or if there was not enough time for the calls.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from server.app import build_app
from server.metrics import Metrics
from tests.attack.app_client import ANSWER_TIMEOUT_S, Client, InProcessClient, SocketClient
from tests.attack.cross_tenant import CrossTenantAttack, CrossTenantResult, count_visible, lend
from tests.attack.follows import FollowResult, attack_follows
from tests.attack.forged_oauth import ForgedOAuthResult, attack_oauth
from tests.attack.forged_tokens import TokenResult, attack_with_tokens
from tests.attack.hostile_files import FileResult, attack_with_files
from tests.attack.leak_detector import LeakDetector
from tests.attack.memory import MemoryPart, attack_memory
from tests.attack.plugins import PluginResult, attack_plugins
from tests.attack.query_attack import QueryResult, attack_with_queries
from tests.attack.roles import RolesResult, attack_roles
from tests.attack.sharing import AccessChanges, SharingResult, attack_sharing
from tests.attack.slow_clients import SHORT_TIMEOUTS, SlowClientResult, attack_with_slow_clients
from tests.attack.surface import Surface, read_surface
from tests.attack.tenants import USERS, Tenant, own_data, plant_tenant
from tests.attack.walls import WALLS
from tests.auth.attack_server import ISSUERS
from tests.live import NO_RATE_LIMITS, LiveServer, live, make_settings
from tests.server.rest.rest_client import RestClient, rest_client_of
from tests.servers.shared import prepared_directory
from tests.servers.storage import uses_postgres

_WORKERS = 8
_SHOWN_MAX = 20
_TIME_LIMIT_S = 2_400.0


class Effort(Struct, frozen=True):
    """Numbers of calls and seconds of each part. `query_step` is 1 for all queries, and n for every n-th; the same
    holds for `role_step` and the cells of the table of roles."""

    calls: int
    calls_s: float
    socket_calls: int
    socket_calls_s: float
    control_calls: int
    issuers: int
    oauth_credentials: int
    files: int
    files_s: float
    queries_s: float
    query_step: int
    slow_copies: int
    slow_s: float
    pipelined: int
    unread: int
    role_step: int
    follow_rounds: int
    plugin_rounds: int
    sharing_calls: int
    sharing_s: float
    # Exports are made one after the other, so the last of several takes long.
    answer_s: float = ANSWER_TIMEOUT_S


FULL = Effort(
    calls=200_000,
    calls_s=1_200,
    socket_calls_s=240,
    socket_calls=5_000,
    control_calls=1_000,
    issuers=len(ISSUERS),
    oauth_credentials=100_000,
    files=250,
    files_s=60,
    queries_s=60,
    query_step=1,
    slow_copies=4,
    slow_s=20,
    pipelined=10_000,
    unread=100,
    role_step=1,
    follow_rounds=10,
    plugin_rounds=20,
    sharing_calls=5_000,
    sharing_s=300,
)
QUICK = Effort(
    calls=600,
    calls_s=60,
    socket_calls_s=30,
    socket_calls=60,
    control_calls=60,
    issuers=1,
    oauth_credentials=500,
    files=6,
    files_s=30,
    queries_s=30,
    query_step=40,
    slow_copies=1,
    slow_s=20,
    pipelined=1_000,
    unread=10,
    role_step=19,
    follow_rounds=1,
    plugin_rounds=2,
    sharing_calls=400,
    sharing_s=60,
)


class AttackedServer(Struct, frozen=True):
    live: LiveServer
    api: RestClient
    client: Client
    surface: Surface
    tenants: tuple[Tenant, ...]
    detector: LeakDetector
    changes: AccessChanges


class AttackResult(Struct, frozen=True):
    """`effort` says how many calls were intended, and `changes` names users whose data others changed."""

    effort: Effort
    targets: int
    visible: int
    in_process: CrossTenantResult
    over_sockets: CrossTenantResult
    changes: list[str]
    tokens: TokenResult
    oauth: ForgedOAuthResult
    files: FileResult
    queries: QueryResult
    slow: SlowClientResult
    memory: list[MemoryPart]
    roles: RolesResult
    follows: FollowResult
    plugins: PluginResult
    sharing: SharingResult
    seconds: float

    @property
    def calls(self) -> int:
        return self.in_process.calls + self.over_sockets.calls + self.sharing.calls

    @property
    def leaks(self) -> list[str]:
        shown = (*self.in_process.leaks, *self.over_sockets.leaks, *self.files.leaks, *self.queries.leaks)
        accepted = [f"forged token accepted: {name}" for name in (*self.tokens.accepted, *self.oauth.accepted)]
        decided = [f"role: {cell}" for cell in self.roles.wrong]
        parts = (self.follows.leaks, self.plugins.leaks, self.sharing.leaks)
        return [*shown, *self.changes, *accepted, *decided, *(leak for leaks in parts for leak in leaks)]

    @property
    def failures(self) -> list[str]:
        """Returns everything else that should not have happened."""
        found = [
            *self.in_process.failures,
            *self.over_sockets.failures,
            *self.files.failures,
            *self.queries.failures,
            *self.follows.failures,
            *self.plugins.failures,
            *self.sharing.failures,
            *(f"valid {algorithm} token refused" for algorithm in self.tokens.refused_valid),
            *(f"valid {name} refused" for name in self.oauth.refused_valid),
            *(f"not closed: {name}" for name in self.slow.open_clients),
            *(f"too much memory: {part.describe()}" for part in self.memory if part.is_too_much),
        ]
        if self.slow.failed_user_calls:
            found.append(f"{self.slow.failed_user_calls} calls of a user failed next to slow clients")
        if not self.visible:
            found.append("no call shows the canary to its owner, so the calls prove nothing")
        for sent, intended in (
            (self.in_process.calls, self.effort.calls),
            (self.over_sockets.calls, self.effort.socket_calls),
        ):
            if sent < intended:
                found.append(f"expected {intended} calls, had time for {sent}")
        return found

    def as_line(self) -> str:
        return (
            f"RESULT leaks={len(self.leaks)} calls={self.calls} "
            f"tokens={self.tokens.tokens + self.oauth.credentials} files={self.files.files} "
            f"queries={self.queries.queries} roles={self.roles.cells} follows={self.follows.attempts} "
            f"plugins={self.plugins.calls} sharing={self.sharing.calls}"
        )


@asynccontextmanager
async def open_attacked_server(root: Path, answer_s: float = ANSWER_TIMEOUT_S) -> AsyncIterator[AttackedServer]:
    # The third user sends nothing, so that the session would end by itself in an attack of half an hour.
    settings = make_settings(root, session_ttl_s=86_400, **NO_RATE_LIMITS, **SHORT_TIMEOUTS)
    async with live(settings) as server:
        api = rest_client_of(server)
        *tenants, last = [await plant_tenant(api, name) for name in USERS]
        last, changes, canaries = await lend(api, last)
        tenants.append(last)
        client = InProcessClient(build_app(server.runtime, Metrics()), answer_s)
        detector = LeakDetector(canaries | {tenant.name: tenant.canary for tenant in tenants})
        surface = await read_surface(api, USERS[0])
        yield AttackedServer(server, api, client, surface, tuple(tenants), detector, changes)


async def attack(effort: Effort, directory: Path) -> AttackResult:
    started_at = time.monotonic()
    async with open_attacked_server(directory / "data", effort.answer_s) as server:
        tenants, detector, surface = server.tenants, server.detector, server.surface
        visible = await count_visible(server.client, surface, tenants, detector, effort.control_calls)
        before = [await own_data(server.api, tenant) for tenant in tenants]
        in_process = await _cross_tenant(server, server.client, 1, effort.calls, effort.calls_s)
        socket = SocketClient(server.live.url)
        over_sockets = await _cross_tenant(server, socket, 2, effort.socket_calls, effort.socket_calls_s)
        queries = await attack_with_queries(
            server.client, surface, tenants[0], detector, effort.queries_s, effort.query_step
        )
        files = await attack_with_files(server.client, tenants[0], detector, directory, effort.files, effort.files_s)
        slow = await attack_with_slow_clients(
            server.live.url, tenants[0], tenants[1], effort.slow_copies, effort.slow_s
        )
        after = [await own_data(server.api, tenant) for tenant in tenants]
    tokens = await attack_with_tokens(directory, effort.issuers)
    oauth = await attack_oauth(directory, effort.oauth_credentials)
    memory = await attack_memory(directory, effort.pipelined, effort.unread)
    roles = await attack_roles(directory, effort.role_step)
    follows = await attack_follows(directory, effort.follow_rounds)
    plugins = await attack_plugins(directory, effort.plugin_rounds)
    sharing = await attack_sharing(directory, effort.sharing_calls, effort.sharing_s)
    pairs = zip(tenants, before, after, strict=True)
    changes = [
        f"data of {tenant.name} was changed: {was[:100]!r} is now {now[:100]!r}"
        for tenant, old, new in pairs
        for was, now in zip(old, new, strict=True)
        if was != now
    ]
    return AttackResult(
        effort=effort,
        targets=len(surface.targets),
        visible=visible,
        in_process=in_process,
        over_sockets=over_sockets,
        changes=changes,
        tokens=tokens,
        oauth=oauth,
        files=files,
        queries=queries,
        slow=slow,
        memory=memory,
        roles=roles,
        follows=follows,
        plugins=plugins,
        sharing=sharing,
        seconds=time.monotonic() - started_at,
    )


async def attack_within(seconds: float, effort: Effort, directory: Path) -> AttackResult:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await attack(effort, directory)
    except TimeoutError:
        if not limit.expired():  # raised by one part; the traceback says which
            raise
        sys.exit(f"the attack did not end within {seconds:g} s")


async def _cross_tenant(
    server: AttackedServer, client: Client, seed: int, calls: int, deadline_s: float
) -> CrossTenantResult:
    attack = CrossTenantAttack(client, server.surface, server.tenants, server.detector, seed, server.changes)
    return await attack.run(calls, deadline_s, _WORKERS)


def report(result: AttackResult) -> Iterator[str]:
    yield f"{result.targets} targets as the server lists them: tools, routes, protocol methods, permalinks, sessions"
    yield f"control: {result.visible} of {result.effort.control_calls} such calls show the canary to its owner"
    for place, part in (("in the process", result.in_process), ("over sockets", result.over_sockets)):
        statuses = ", ".join(f"{status}: {count}" for status, count in sorted(part.by_status.items()))
        least = min(part.by_target.values(), default=0)
        yield (
            f"cross-tenant calls {place}: {part.calls} in {part.seconds:.0f} s, at least {least} for each of "
            f"{len(part.by_target)} targets; by status {statuses}; meanwhile {part.changes} changes of access, "
            f"{part.visible} calls showed what was shared, {part.after_revocation} began after it was lost"
        )
    yield f"forged tokens: {result.tokens.tokens}, each on MCP and REST; accepted {len(result.tokens.accepted)}"
    yield f"forged OAuth credentials: {result.oauth.credentials}, accepted {len(result.oauth.accepted)}"
    yield f"hostile files: {result.files.files}, of which {result.files.imported} could be imported in part or whole"
    yield f"hostile queries: {result.queries.queries}, to {result.queries.tools} tools"
    yield (
        f"slow and endless clients: {result.slow.clients}, not closed {len(result.slow.open_clients)}; meanwhile "
        f"{result.slow.user_calls} calls of a user, the slowest {result.slow.slowest_user_call_s:.2f} s"
    )
    yield from (f"memory, {part.describe()}" for part in result.memory)
    roles, decisions = result.roles, result.roles.decisions
    counts = ", ".join(f"{count} {decision}" for decision, count in sorted(decisions.items()))
    yield (
        f"roles: {roles.operations} operations and {roles.tools} tools with {roles.credentials} kinds of credentials, "
        f"{roles.cells} pairs tried; {counts}; decided otherwise than declared {len(roles.wrong)}"
    )
    yield f"follows: {result.follows.attempts} attempts, leaks {len(result.follows.leaks)}"
    yield f"plugins: {result.plugins.calls} calls next to {result.plugins.sources} sources that misbehave"
    sharing = result.sharing
    yield (
        f"sharing: {sharing.calls} calls during {sharing.changes} changes of access; {sharing.visible} showed a "
        f"library that was shared, {sharing.after_revocation} began after one was lost; leaks {len(sharing.leaks)}"
    )
    yield f"took {result.seconds:.0f} s"
    for title, found in (("LEAK", result.leaks), ("FAILURE", result.failures)):
        yield from (f"{title} {line}" for line in found[:_SHOWN_MAX])
        if len(found) > _SHOWN_MAX:
            yield f"{title} and {len(found) - _SHOWN_MAX} more"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.attack.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sample of a few seconds")
    parser.add_argument(
        "--time", type=int, default=1, metavar="N", help="N times the usual time, for a slow or busy machine"
    )
    parser.add_argument("--without", choices=WALLS, help="remove one of the two walls between libraries (PostgreSQL)")
    options = parser.parse_args(arguments)
    if options.without and not uses_postgres():
        parser.error("--without needs TEST_STORAGE=postgres")
    effort = QUICK if options.quick else FULL
    factor = options.time
    effort = replace(
        effort,
        calls_s=effort.calls_s * factor,
        socket_calls_s=effort.socket_calls_s * factor,
        answer_s=effort.answer_s * factor,
    )
    logger.remove()
    with ExitStack() as stack:
        stack.enter_context(prepared_directory())
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="florilegium-attack-"))
        if options.without:
            stack.enter_context(WALLS[options.without]())
        result = asyncio.run(attack_within(_TIME_LIMIT_S * factor, effort, Path(name)))
    for line in [*report(result), result.as_line()]:
        print(line)
    return int(bool(result.leaks or result.failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
