"""The limits on guessing passwords, with a manual clock."""

import pytest

from auth.accounts.throttle import SignInFailed, SignInThrottle, network_of
from config.errors import RateLimited
from tests.auth.auth_fixture import FakeClock, make_settings


def fail(throttle: SignInThrottle, account: str, address: str, browser: str | None = None) -> bool:
    """Returns whether the attempt was allowed; it fails in any case."""
    try:
        with throttle.attempt(account, address, browser):
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
    return SignInThrottle(settings, clock)


def test_account_is_limited_over_all_addresses(throttle: SignInThrottle) -> None:
    assert [fail(throttle, "ada", f"192.0.2.{n}") for n in range(5)] == [True] * 3 + [False] * 2
    assert fail(throttle, "ben", "192.0.2.9")


def test_attempts_come_back_with_time(throttle: SignInThrottle, clock: FakeClock) -> None:
    for number in range(3):
        fail(throttle, "ada", f"192.0.2.{number}")
    clock.advance(61)

    assert fail(throttle, "ada", "192.0.2.9")
    assert not fail(throttle, "ada", "192.0.2.10")


def test_upper_and_lower_case_of_a_name_are_one_account(throttle: SignInThrottle) -> None:
    assert [fail(throttle, name, f"192.0.2.{n}") for n, name in enumerate(("ada", "ADA", "Ada", "aDa"))][-1] is False


def test_address_is_limited_over_all_accounts(throttle: SignInThrottle) -> None:
    assert [fail(throttle, f"user{n}", "192.0.2.1") for n in range(7)] == [True] * 5 + [False] * 2


def test_refused_attempts_do_not_extend_the_wait(throttle: SignInThrottle, clock: FakeClock) -> None:
    for _ in range(50):
        fail(throttle, "ada", "192.0.2.1")
    clock.advance(61)

    assert fail(throttle, "ada", "192.0.2.2")


def test_known_browser_has_attempts_of_its_own(throttle: SignInThrottle) -> None:
    for number in range(5):
        fail(throttle, "ada", f"192.0.2.{number}")

    assert [fail(throttle, "ada", "192.0.2.0", "laptop") for _ in range(4)] == [True] * 3 + [False]
    assert fail(throttle, "ada", "192.0.2.0", "phone")


def test_success_does_not_count(throttle: SignInThrottle) -> None:
    for _ in range(20):
        with throttle.attempt("ada", "192.0.2.1", None):
            pass

    assert fail(throttle, "ada", "192.0.2.1")


@pytest.mark.parametrize(
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
