"""Import stamps: what a row remembers of the draft that it was last imported from.

A stamp is a digest of the draft, its modification time if it has one, and the version that the row got (`v3`). A row
was edited since if it has another version, or no stamp at all.
"""

_VERSION_MARK = " v"
# The stamp of an item that was deleted because its origin disappeared.
WITHDRAWN = "-"


def with_version(stamp: str | None, version: int) -> str:
    return f"{stamp or ''}{_VERSION_MARK}{version}"


def without_version(stamp: str | None) -> str | None:
    return stamp if stamp is None else stamp.partition(_VERSION_MARK)[0]


def version_part(stamp: str | None) -> str:
    """Returns the mark and the version. Stamps of older versions of this server have none."""
    _, mark, version = (stamp or "").partition(_VERSION_MARK)
    return mark + version


def has_edits(stamp: str | None, version: int) -> bool:
    """Whether a row of this version was edited since it was imported. False if the stamp does not tell."""
    stamped = version_part(stamp).removeprefix(_VERSION_MARK)
    return stamp is None or (stamped.isdecimal() and int(stamped) != version)
