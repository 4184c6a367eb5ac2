"""Cross-tenant calls: two users and a stranger call everything with the identifiers of other users.

Every response is searched for the canaries of others, and afterwards every user's data must be as it was before. All
the while the attackers are let in and out of a group and a shared part of the library of a third user (`lend`), whose
canaries must not be in a response to a call that began afterwards.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from auth.context import ShareRule
from auth.sharing import Sharing
from config.errors import Conflict, NotFound
from tests.attack.app_client import AttackRequest, Client
from tests.attack.generated_calls import CallGenerator
from tests.attack.leak_detector import LeakDetector, new_canary
from tests.attack.sharing import AccessChanges, Grant, share_grant
from tests.attack.surface import Surface, Target, is_reading
from tests.attack.tenants import ATTACKERS, Tenant
from tests.compatibility.sample_requests import WORD
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import RestClient

# Even the cheapest target gets at most this multiple of its share of the calls.
_SHARE_MAX = 3
_STRANGER_SHARE = 0.15
_SHOWN_CHARS = 300
# How long an access lasts at most: longer than most calls of eight workers take.
_PHASE_S = 0.5
# 503 is not among them: it refuses a call while the server is busy.
_SERVER_ERRORS = frozenset((500, 501, 502, 504))
_STRANGERS: tuple[Mapping[str, str], ...] = (
    {},
    {"Authorization": "Bearer forged"},
    {"Authorization": "Basic YWRhOmFkYQ=="},
)


class CrossTenantResult(Struct):
    """`leaks` and `failures` describe calls. A failure is a server error, which may hide a leak."""

    calls: int = 0
    seconds: float = 0.0
    leaks: list[str] = []
    failures: list[str] = []
    by_target: Counter[str] = Counter()
    by_status: Counter[int] = Counter()
    changes: int = 0
    visible: int = 0
    after_revocation: int = 0


async def lend(api: RestClient, owner: Tenant) -> tuple[Tenant, AccessChanges, dict[str, str]]:
    """Creates a group and a tag of the owner, which the attackers get and lose. Returns the owner with what the
    attackers know of them, and the canaries."""
    sharing = Sharing(api.server.runtime.registry.database)
    user = await api.library_user(owner.name)
    canaries = {name: new_canary(name) for name in ("crew", "tag")}
    group = await sharing.create_group(user.context.user_id, "crew")
    handles = ["s_unknown", group.handle]
    uris: list[str] = []
    for number in range(5):
        text = f"a {WORD} {canaries['crew']} under sail {number}"
        uris.append((await user.call("items_create", source="notes", title=text, content=text, library="crew"))["uri"])
        text = f"a {WORD} {canaries['tag']} under sail {number}"
        uris.append(f"notes://{await user.add_note(text, text, tags=['lent'])}")
    grants: list[Grant] = []
    for person in ATTACKERS:

        async def join(person: str = person) -> None:
            try:
                await sharing.add_member("crew", person, "reader")
            except Conflict:  # attackers also create groups, until they have as many as a person may have
                attacker = await api.library_user(person)
                for own in await sharing.list_groups(attacker.context.user_id):
                    await sharing.delete_group((await sharing.close_group(None, own.name)).id)
                await sharing.add_member("crew", person, "reader")

        async def leave(person: str = person) -> None:
            with suppress(NotFound):  # attackers also call what leaves a group
                await sharing.remove_member(None, "crew", person)

        grants.append(Grant(person, "crew", join, leave))
        grants.append(share_grant(sharing, person, "tag", ShareRule("tag", "lent"), user.context.user_id, handles))
    # As many as the others that are tried.
    uris += owner.known["uri"][: len(uris)]
    known = {**owner.known, "library": handles, "libraries": handles, "uri": uris}
    return replace(owner, known=known), AccessChanges(grants, _PHASE_S), canaries


async def count_visible(
    client: Client, surface: Surface, tenants: Sequence[Tenant], detector: LeakDetector, calls: int
) -> int:
    """Returns how many of such calls return the canary if its owner sends them: they do reach the data.

    Only calls that change nothing are sent.
    """
    rng, visible = random.Random(calls), 0
    targets = [target for target in surface.targets if is_reading(target)]
    generators = [(tenant, CallGenerator(surface, tenant, tenant, rng)) for tenant in tenants]
    for number in range(calls):
        tenant, generator = generators[number % len(generators)]
        response = await client.send(generator.generate(rng.choice(targets)), tenant.credential)
        visible += bool(detector.owners_in(response.body, None))
    return visible


class CrossTenantAttack:
    """Targets get equal time, not equal numbers of calls, because an import takes a thousand times as long as a read of
    an unknown id; and none gets more than three times its share of the calls."""

    def __init__(
        self,
        client: Client,
        surface: Surface,
        tenants: Sequence[Tenant],
        detector: LeakDetector,
        seed: int,
        changes: AccessChanges | None = None,
    ) -> None:
        self._changes = changes or AccessChanges(())
        self._client = client
        self._targets = surface.targets
        self._detector = detector
        self._rng = random.Random(seed)
        self._spent_s: dict[int, float] = dict.fromkeys(range(len(self._targets)), 0.0)
        self._counts: Counter[int] = Counter()
        self._generators = {
            (attacker.name if attacker else None, victim.name): CallGenerator(surface, victim, attacker, self._rng)
            for attacker in (*(tenant for tenant in tenants if tenant.is_attacker), None)
            for victim in tenants
            if victim is not attacker
        }
        self._credentials = {tenant.name: tenant.credential for tenant in tenants}
        self.result = CrossTenantResult(leaks=[], failures=[], by_target=Counter(), by_status=Counter())

    async def run(self, calls: int, deadline_s: float, workers: int) -> CrossTenantResult:
        """Sends this many calls, or as many as the deadline allows."""
        started_at = time.monotonic()
        share_max = max(1, _SHARE_MAX * calls // len(self._targets))
        limit = min(calls, share_max * len(self._targets))

        async def work() -> None:
            while self.result.calls < limit and time.monotonic() - started_at < deadline_s:
                self.result.calls += 1
                await self._call(self._choose(share_max))

        async with self._changes.running():
            await asyncio.gather(*(work() for _ in range(workers)))
        changes = self._changes
        self.result.changes, self.result.visible = changes.count, changes.visible
        self.result.after_revocation = changes.after_revocation
        self.result.failures += changes.failures
        self.result.seconds = time.monotonic() - started_at
        return self.result

    def _choose(self, share_max: int) -> int:
        open_targets = [number for number in self._spent_s if self._counts[number] < share_max]
        number = min(open_targets or [0], key=self._spent_s.__getitem__)
        self._counts[number] += 1
        return number

    def _choose_pair(self) -> tuple[str | None, str]:
        """Returns attacker and victim. Most calls of strangers end at the credential, so they are fewer."""
        is_stranger = self._rng.random() < _STRANGER_SHARE
        return self._rng.choice([pair for pair in self._generators if (pair[0] is None) == is_stranger])

    async def _call(self, number: int) -> None:
        target: Target = self._targets[number]
        attacker, victim = self._choose_pair()
        request = self._generators[attacker, victim].generate(target)
        credential = self._credentials[attacker] if attacker else self._rng.choice(_STRANGERS)
        # Counted before the call, so that the other workers choose other targets meanwhile.
        started_at = time.monotonic()
        self._spent_s[number] += 0.001
        before = self._changes.before_call()
        try:
            response = await self._client.send(request, credential)
        except TimeoutError:
            self.result.failures.append(f"{request.target}: no response in time")
            return
        self._spent_s[number] += time.monotonic() - started_at
        self._record(request, response, attacker, before)

    def _record(
        self, request: AttackRequest, response: HttpResponse, attacker: str | None, before: list[tuple[int, bool]]
    ) -> None:
        self.result.by_target[request.target] += 1
        self.result.by_status[response.status] += 1
        headers = "\n".join(f"{name}: {value}" for name, value in response.headers).encode()
        sender = attacker or "a stranger"
        shown = self._detector.owners_in(headers + b"\n" + response.body, attacker)
        for owner in self._changes.forbidden(attacker, before, shown):
            self.result.leaks.append(f"{sender} got data of {owner}: {_shown(request)}")
        if response.status in _SERVER_ERRORS or b'"code":-32603' in response.body:
            self.result.failures.append(f"{_shown(request)}: {response.status} {response.body[:200]!r}")


def _shown(request: AttackRequest) -> str:
    return f"{request.target}: {request.method} {request.path} {request.body.decode(errors='replace')}"[:_SHOWN_CHARS]
