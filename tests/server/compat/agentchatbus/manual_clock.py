"""A clock for tests."""


class ManualClock:
    """Moves only when a test changes `now`."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
