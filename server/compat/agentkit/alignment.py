"""Where the messages that a client sends meet those that are stored, so that only what is new is written.

A client sends its whole conversation with every turn, or the end of it; it may have gone back and said something else.
"""

from collections.abc import Sequence

from msgspec import Struct

Fingerprint = tuple[str, ...]


class Held(Struct, frozen=True):
    """A stored message: what it says, and the place of the one it follows, -1 if that is not known."""

    fingerprint: Fingerprint
    previous: int


class Meeting(Struct, frozen=True):
    """The last stored message that was sent again (-1: none), and how many of those sent are stored up to it."""

    held: int = -1
    sent: int = 0


def align(held: Sequence[Held], sent: Sequence[Fingerprint], *, is_whole: bool) -> Meeting:
    """The longest run of messages that stand in both, one after another; of equal ones the one that is sent last.

    One message alone is no proof, because people repeat themselves: it counts only where both begin with it.
    `is_whole` says that `held` is all that is stored.
    """
    runs: list[list[int]] = []
    best, meeting = 0, Meeting()
    for place, message in enumerate(held):
        before = runs[message.previous] if message.previous >= 0 else None
        runs.append(_runs(message.fingerprint, sent, before))
        for position, length in enumerate(runs[place]):
            begins_both = is_whole and place == position == 0
            is_proof = length > 1 or (length == 1 and begins_both)
            if is_proof and (length, position + 1) >= (best, meeting.sent):
                best, meeting = length, Meeting(place, position + 1)
    return meeting


def _runs(fingerprint: Fingerprint, sent: Sequence[Fingerprint], before: Sequence[int] | None) -> list[int]:
    """For each message sent: how long the run is that ends with it and this stored one."""
    return [
        (1 + (before[position - 1] if before is not None and position else 0)) if one == fingerprint else 0
        for position, one in enumerate(sent)
    ]
