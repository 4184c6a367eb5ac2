"""The servers that are measured side by side, each a process of its own that prints its announcement when it is up."""

import sys

import msgspec
from msgspec import Struct

ECHO_TITLE = "Echo"
ECHO_DESCRIPTION = "Returns the text it was given."


class Account(Struct, frozen=True):
    """One user's two credentials."""

    token: str
    key: str


class Announcement(Struct, frozen=True):
    """Where a server listens, and who may call it; no accounts where it asks for no credential."""

    url: str
    accounts: tuple[Account, ...] = ()


def announce(announcement: Announcement) -> None:
    """One line on standard output, which is a pipe of the benchmark's own."""
    sys.stdout.buffer.write(msgspec.json.encode(announcement) + b"\n")
    sys.stdout.buffer.flush()
