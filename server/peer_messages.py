"""What processes tell each other: changes for open streams, and that the control database was changed."""

import msgspec

from auth.control_database import ControlDatabase
from server.peers import RECONNECTED, Peers
from server.protocol.changes import LIST_KINDS, Change, ChangeFeed

_CHANGED = "library changed"
_CONTROL_CHANGED = "control database changed"


def share_changes(changes: ChangeFeed, peers: Peers) -> None:
    """Notifies streams of changes that another process makes. After a lost connection every list counts as changed."""

    def deliver_all(_content: object) -> None:
        for kind in LIST_KINDS:
            changes.deliver(Change(kind))

    changes.relay = lambda change: peers.publish(_CHANGED, change)
    peers.handle(_CHANGED, lambda content: changes.deliver(msgspec.convert(content, Change)))
    peers.handle(RECONNECTED, deliver_all)


def share_revision(database: ControlDatabase, peers: Peers) -> None:
    """Makes a revocation by one process known to the others at once. SQLite needs no message: every process notices a
    changed file by itself."""
    from auth.postgres_control import PostgresControlDatabase  # noqa: PLC0415 - needs what PostgreSQL needs

    if isinstance(database, PostgresControlDatabase):
        database.announce = lambda revision: peers.publish(_CONTROL_CHANGED, revision)
        peers.handle(_CONTROL_CHANGED, database.advance)
