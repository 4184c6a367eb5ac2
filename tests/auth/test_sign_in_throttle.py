"""The limits on guessing passwords, with a manual clock."""

import pytest

from auth.accounts.service import SignInFailed, SignInThrottle
from auth.rate_limits import in_process_limits, network_of
from config.errors import RateLimited
from tests.auth.auth_fixture import FakeClock, make_settings
from tests.cases import each_case


async def fail(throttle: SignInThrottle, account: str, address: str, browser: str | None = None) -> bool:
    """Returns whether the attempt was allowed; it fails in any case."""
    try:
        async with throttle.attempt(account, address, browser):
            raise SignInFailed
    except SignInFailed:
        return True
    except RateLimited:
        return False


@pytest.fixture
def throttle(clock: FakeClock) -> SignInThrottle:
    settings = make_settings(
        rate_sign_in_account_burst=3,
        rate_sign_in_account_per_minute=1,
        rate_sign_in_address_burst=5,
        rate_sign_in_address_per_minute=2,
    )
    return SignInThrottle(settings, in_process_limits(clock))


async def test_account_is_limited_over_all_addresses(throttle: SignInThrottle) -> None:
    assert [await fail(throttle, "ada", f"192.0.2.{n}") for n in range(5)] == [True] * 3 + [False] * 2
    assert await fail(throttle, "ben", "192.0.2.9")


async def test_attempts_come_back_with_time(throttle: SignInThrottle, clock: FakeClock) -> None:
    for number in range(3):
        await fail(throttle, "ada", f"192.0.2.{number}")
    clock.advance(61)

    assert await fail(throttle, "ada", "192.0.2.9")
    assert not await fail(throttle, "ada", "192.0.2.10")


async def test_upper_and_lower_case_of_a_name_are_one_account(throttle: SignInThrottle) -> None:
    assert [await fail(throttle, name, f"192.0.2.{n}") for n, name in enumerate(("ada", "ADA", "Ada", "aDa"))][
        -1
    ] is False


async def test_address_is_limited_over_all_accounts(throttle: SignInThrottle) -> None:
    assert [await fail(throttle, f"user{n}", "192.0.2.1") for n in range(7)] == [True] * 5 + [False] * 2


async def test_refused_attempts_do_not_extend_the_wait(throttle: SignInThrottle, clock: FakeClock) -> None:
    for _ in range(50):
        await fail(throttle, "ada", "192.0.2.1")
    clock.advance(61)

    assert await fail(throttle, "ada", "192.0.2.2")


async def test_known_browser_has_attempts_of_its_own(throttle: SignInThrottle) -> None:
    for number in range(5):
        await fail(throttle, "ada", f"192.0.2.{number}")

    assert [await fail(throttle, "ada", "192.0.2.0", "laptop") for _ in range(4)] == [True] * 3 + [False]
    assert await fail(throttle, "ada", "192.0.2.0", "phone")


async def test_success_does_not_count(throttle: SignInThrottle) -> None:
    for _ in range(20):
        async with throttle.attempt("ada", "192.0.2.1", None):
            pass

    assert await fail(throttle, "ada", "192.0.2.1")


@each_case(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("unknown", "unknown"),
    ],
)
def test_one_network_of_ipv6_counts_as_one_address(address: str, network: str) -> None:
    assert network_of(address) == network
