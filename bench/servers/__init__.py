"""The servers under test. Each is a separate process that prints an announcement when it is ready."""

import sys

import msgspec
from msgspec import Struct

ECHO_TITLE = "Echo"
ECHO_DESCRIPTION = "Returns the text it was given."


class Account(Struct, frozen=True):
    """The two credentials of a user."""

    token: str
    key: str


class Announcement(Struct, frozen=True):
    """The URL of a server and its accounts. There are none if the server requires no credential."""

    url: str
    accounts: tuple[Account, ...] = ()


def announce(announcement: Announcement) -> None:
    """Prints the announcement as one line on standard output, which the benchmark reads."""
    sys.stdout.buffer.write(msgspec.json.encode(announcement) + b"\n")
    sys.stdout.buffer.flush()
