"""Limits guessing of passwords, per account and per address, without locking people out of their accounts.

A stranger who fails to sign in to an account again and again uses up the attempts that strangers have, not those of the
browsers in which the account's owner has signed in before: each of them has attempts of its own. An attempt that
succeeds does not count. Names that do not exist are limited like others.
"""

import ipaddress
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from auth.rate_limits import TokenBuckets
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
    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        account = (settings.rate_sign_in_account_per_minute, settings.rate_sign_in_account_burst)
        address = (settings.rate_sign_in_address_per_minute, settings.rate_sign_in_address_burst)
        self._strangers = TokenBuckets("failed sign-ins to this account", *account, settings.rate_keys_max, clock)
        self._known = TokenBuckets("failed sign-ins to this account", *account, settings.rate_keys_max, clock)
        self._addresses = TokenBuckets("failed sign-ins", *address, settings.rate_keys_max, clock)

    @contextmanager
    def attempt(self, account: str, address: str, known_browser: str | None) -> Iterator[None]:
        """Counts the attempt made in the block if it ends with SignInFailed. Raises RateLimited instead of starting it.
        The attempt is counted first, so that many at the same time are no way around the limit."""
        account, has_failed = account.casefold(), False
        buckets: list[tuple[TokenBuckets, Hashable]] = (
            [(self._known, (account, known_browser))]
            if known_browser
            else [(self._addresses, network_of(address)), (self._strangers, account)]
        )
        for limit, key in buckets:
            limit.take(key)
        try:
            yield
        except SignInFailed:
            has_failed = True
            raise
        finally:
            if not has_failed:
                for limit, key in buckets:
                    limit.give_back(key)


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
