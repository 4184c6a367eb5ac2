"""Token buckets: how often a key (a user, a user's tool, an address) may do something.

They are kept in this process, or in Redis for all processes of a deployment (`auth.redis`).
"""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol, Self

from msgspec import Struct

from auth.context import READ, SCOPES, WRITE
from config.errors import Forbidden, RateLimited, Unauthenticated
from config.settings import Settings

# Users, tools and addresses tracked by each limit. The least recently seen is dropped first.
RATE_KEYS_MAX = 100_000

Clock = Callable[[], float]
LimitKey = str | tuple[str, ...]


class LimitRule(Struct, frozen=True):
    """Buckets are refilled at `per_minute` and hold at most `burst` tokens; a rate of 0 means no limit. `name`
    distinguishes the rule from others, and `what` says in messages what is limited."""

    name: str
    what: str
    per_minute: float
    burst: int

    @property
    def interval_s(self) -> float:
        """The time in which a bucket gains one token."""
        return 60.0 / self.per_minute if self.per_minute else 0.0


class RateLimit(Protocol):
    """One bucket per key. `refusals` is how often `take` refused, since the start of the process."""

    refusals: int

    async def take(self, key: LimitKey, cost: float = 1) -> None:
        """Takes `cost` tokens, or takes none and raises RateLimited with the exact wait.

        A cost above the bucket's capacity empties the bucket; otherwise it could never be allowed.
        """
        ...

    async def give_back(self, key: LimitKey, cost: float = 1) -> None:
        """Returns tokens that `take` took for something that turned out not to count."""
        ...


MakeLimit = Callable[[LimitRule], RateLimit]


class TokenBuckets:
    """The buckets of one rule, in this process.

    A bucket is stored as one number, the time at which it will be full again; that is equivalent to a level and the
    time of its measurement, and a missing entry is a full bucket. At `keys_max` the least recently used key is dropped,
    which can only make the limit more lenient.
    """

    def __init__(self, rule: LimitRule, keys_max: int, clock: Clock = time.monotonic) -> None:
        self._rule = rule
        self._interval_s = rule.interval_s
        # What a bucket holds, as the time in which it is filled.
        self._burst_s = rule.burst * rule.interval_s
        self._keys_max = keys_max
        self._clock = clock
        self._full_at: OrderedDict[LimitKey, float] = OrderedDict()
        self.refusals = 0

    async def take(self, key: LimitKey, cost: float = 1) -> None:
        if not self._interval_s:
            return
        now, burst_s, cost_s, buckets = self._clock(), self._burst_s, cost * self._interval_s, self._full_at
        full_at = buckets.get(key, now)
        # Without max and min: every call comes through here twice.
        full_at = (full_at if full_at > now else now) + (cost_s if cost_s < burst_s else burst_s)  # noqa: FURB136
        wait_s = full_at - now - burst_s
        if wait_s > 1e-9:  # tolerates the rounding error of the additions above
            self.refusals += 1
            raise RateLimited(self._rule.what, wait_s)
        buckets[key] = full_at
        buckets.move_to_end(key)
        if len(buckets) > self._keys_max:
            buckets.popitem(last=False)

    async def give_back(self, key: LimitKey, cost: float = 1) -> None:
        if key in self._full_at:
            self._full_at[key] -= cost * self._interval_s


def in_process_limits(clock: Clock = time.monotonic) -> MakeLimit:
    return lambda rule: TokenBuckets(rule, RATE_KEYS_MAX, clock)


_IPV6_PREFIX = 64


def network_of(address: str) -> str:
    """Returns the address, or the network of an IPv6 address: one customer of a provider has a whole one."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))


class RateLimits(Struct, frozen=True):
    """Limits for a user's calls, a user's calls to one tool, and failed sign-ins from one address."""

    user: RateLimit
    tool: RateLimit
    failures: RateLimit

    @classmethod
    def from_settings(cls, settings: Settings, make_limit: MakeLimit) -> Self:
        failure_rate = settings.rate_failures_per_minute
        user_rate, tool_rate = settings.rate_user_per_minute, settings.rate_tool_per_minute
        if not settings.is_auth_configured:
            user_rate = tool_rate = 0  # in single-user mode there are no other users to protect
        return cls(
            user=make_limit(LimitRule("user", "calls", user_rate, settings.fixed.rate_user_burst)),
            tool=make_limit(LimitRule("tool", "this tool", tool_rate, settings.fixed.rate_tool_burst)),
            failures=make_limit(
                LimitRule("failures", "failed sign-ins", failure_rate, settings.fixed.rate_failures_burst)
            ),
        )


# -- challenge ---------------------------------------------------------------------------------------------------------
# The WWW-Authenticate challenge (RFC 6750) and the protected resource metadata (RFC 9728).
#
# These functions compute text from the settings and an error; they send nothing.

METADATA_PATH = "/.well-known/oauth-protected-resource/mcp"

# The scopes a client should request: enough to use the server, without administration.
_USUAL_SCOPES = f"{READ} {WRITE}"


def challenge(settings: Settings, error: Unauthenticated | Forbidden, profile: str | None = None) -> str:
    """Returns the value of WWW-Authenticate. It has no error code if no credential was sent (RFC 6750 section 3.1).

    `profile` is the profile of the address that was requested, whose metadata names that address.
    """
    match error:
        case Forbidden():
            parameters = {"error": "insufficient_scope", "scope": error.scope}
        case Unauthenticated(presented=True):
            parameters = {"error": "invalid_token", "error_description": error.message, "scope": _USUAL_SCOPES}
        case _:
            parameters = {"scope": _USUAL_SCOPES}
    path = METADATA_PATH + _profile_suffix(settings, profile)
    parameters = {"resource_metadata": settings.base_url + path, **parameters}
    return "Bearer " + ", ".join(f'{name}="{_quotable(value)}"' for name, value in parameters.items())


def resource_metadata(settings: Settings, profile: str | None = None) -> dict[str, Any]:
    """Returns the document of RFC 9728 section 2. Clients compare `resource` byte by byte."""
    metadata: dict[str, Any] = {
        "resource": settings.resource_url + _profile_suffix(settings, profile),
        "resource_name": "Florilegium",
        "scopes_supported": list(SCOPES),
        "bearer_methods_supported": ["header"],
        "resource_documentation": settings.about_url("documentation"),
        "resource_policy_uri": settings.about_url("privacy"),
        "resource_tos_uri": settings.about_url("terms"),
    }
    # This server if it issues tokens; otherwise the configured servers, or else the issuer of accepted tokens, if that
    # is a URL.
    has_external_issuer = settings.jwt_key_file or settings.jwt_jwks_url
    if settings.has_oauth_server:
        metadata["authorization_servers"] = [settings.base_url]
    elif settings.authorization_servers:
        metadata["authorization_servers"] = list(settings.authorization_servers)
    elif has_external_issuer and settings.jwt_issuer.startswith(("https://", "http://")):
        metadata["authorization_servers"] = [settings.jwt_issuer]
    return metadata


def _profile_suffix(settings: Settings, profile: str | None) -> str:
    """The address of a profile is a resource of its own only where this server issues the tokens: those of an identity
    provider have one audience."""
    return f"/{profile}" if profile is not None and settings.has_oauth_server else ""


def _quotable(text: str) -> str:
    """Escapes text for a quoted string (RFC 9110 section 5.6.4): printable ASCII, with `\\` and `"` escaped."""
    visible = "".join(c if " " <= c <= "~" else "?" for c in text)
    return visible.replace("\\", "\\\\").replace('"', '\\"')
