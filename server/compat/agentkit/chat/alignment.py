"""Matches the messages that a client sends against those that are stored, so that only new ones are written.

Clients send the whole conversation with every turn, or the end of it; they may also go back and say something else.
"""

from collections.abc import Sequence

from msgspec import Struct

Fingerprint = tuple[str, ...]


class StoredTurn(Struct, frozen=True):
    """A stored message: its fingerprint, and the index of the message it follows (-1 if unknown)."""

    fingerprint: Fingerprint
    previous: int


class Overlap(Struct, frozen=True):
    """`last_stored` is the index of the last stored message that was sent again (-1: none); `sent_count` is how many of
    the sent messages end there."""

    last_stored: int = -1
    sent_count: int = 0


def find_overlap(stored: Sequence[StoredTurn], sent: Sequence[Fingerprint], *, is_whole: bool) -> Overlap:
    """Finds the longest run of consecutive messages that occurs in both; of equal runs, the one that was sent last.

    A single message is no proof, because people repeat themselves: it counts only if both sequences begin with it.
    `is_whole` says that `stored` is the whole conversation.
    """
    run_lengths: list[list[int]] = []
    best_length, overlap = 0, Overlap()
    for index, turn in enumerate(stored):
        previous = run_lengths[turn.previous] if turn.previous >= 0 else None
        run_lengths.append(_run_lengths(turn.fingerprint, sent, previous))
        for position, length in enumerate(run_lengths[index]):
            begins_both = is_whole and index == position == 0
            is_proof = length > 1 or (length == 1 and begins_both)
            if is_proof and (length, position + 1) >= (best_length, overlap.sent_count):
                best_length, overlap = length, Overlap(index, position + 1)
    return overlap


def _run_lengths(fingerprint: Fingerprint, sent: Sequence[Fingerprint], previous: Sequence[int] | None) -> list[int]:
    """For each sent message, the length of the run that ends with it and with the stored message."""
    return [
        (1 + (previous[position - 1] if previous is not None and position else 0)) if other == fingerprint else 0
        for position, other in enumerate(sent)
    ]
