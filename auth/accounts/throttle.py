"""Limits guessing of passwords, per account and per address, without locking people out of their accounts.

A stranger who fails to sign in to an account again and again uses up the attempts that strangers have, not those of the
browsers in which the account's owner has signed in before: each of them has attempts of its own. An attempt that
succeeds does not count. Names that do not exist are limited like others.
"""

import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from auth.rate_limits import LimitKey, LimitRule, MakeLimit, RateLimit
from config.errors import FlorilegiumError
from config.settings import Settings

_IPV6_PREFIX = 64


class SignInFailed(FlorilegiumError):
    """The account does not exist, is disabled or has another password; callers cannot distinguish these. `user_id` is
    the user whose account it is, for the audit log only."""

    status = 403
    code = 403

    def __init__(self, message: str = "the name or the password is wrong", user_id: str = "") -> None:
        super().__init__(message)
        self.user_id = user_id


class SignInThrottle:
    def __init__(self, settings: Settings, make_limit: MakeLimit) -> None:
        what, rate = "failed sign-ins to this account", settings.rate_sign_in_account_per_minute
        burst = settings.rate_sign_in_account_burst
        self._strangers = make_limit(LimitRule("sign-in", what, rate, burst))
        self._known = make_limit(LimitRule("sign-in of browser", what, rate, burst))
        address = (settings.rate_sign_in_address_per_minute, settings.rate_sign_in_address_burst)
        self._addresses = make_limit(LimitRule("sign-in from address", "failed sign-ins", *address))

    @asynccontextmanager
    async def attempt(self, account: str, address: str, known_browser: str | None) -> AsyncIterator[None]:
        """Counts the attempt made in the block if it ends with SignInFailed. Raises RateLimited instead of starting it.
        The attempt is counted first, so that many at the same time are no way around the limit."""
        account, has_failed = account.casefold(), False
        buckets: list[tuple[RateLimit, LimitKey]] = (
            [(self._known, (account, known_browser))]
            if known_browser
            else [(self._addresses, network_of(address)), (self._strangers, account)]
        )
        for limit, key in buckets:
            await limit.take(key)
        try:
            yield
        except SignInFailed:
            has_failed = True
            raise
        finally:
            if not has_failed:
                for limit, key in buckets:
                    await limit.give_back(key)


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
