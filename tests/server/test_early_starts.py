"""Which calls start before the rate limits have answered."""

from config.paths import new_user_id
from server.call_limits import EarlyStarts
from tests.build_settings import build_settings

ADA, BEN = new_user_id(), new_user_id()
SETTINGS = build_settings(
    jwt_secret="s" * 32, rate_user_per_minute=60, rate_user_burst=5, rate_tool_per_minute=60, rate_tool_burst=8
)


class SettableClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_one_call_of_a_user_starts_early_at_a_time() -> None:
    starts = EarlyStarts(SETTINGS)
    assert [starts.begin(ADA), starts.begin(ADA), starts.begin(BEN)] == [True, False, True]
    starts.end(ADA)
    assert [starts.begin(ADA), starts.begin(BEN)] == [True, False]


def test_after_a_refusal_no_call_of_the_user_starts_early_until_the_limits_could_be_full() -> None:
    clock = SettableClock()
    starts = EarlyStarts(SETTINGS, clock)
    starts.pause(ADA)
    assert [starts.begin(ADA), starts.begin(BEN)] == [False, True]
    clock.now += 7.9
    assert not starts.begin(ADA)
    starts.pause(ADA)
    clock.now += 7.9
    assert not starts.begin(ADA)
    clock.now += 0.2
    assert starts.begin(ADA)
