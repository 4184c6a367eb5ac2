"""The protocol revisions we speak, in two eras: with an `initialize` handshake, and without."""

import enum

MODERN_VERSIONS = ("2026-07-28",)
LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ALL_VERSIONS = (*LEGACY_VERSIONS, *MODERN_VERSIONS)
LATEST_LEGACY = LEGACY_VERSIONS[-1]
# A legacy request without a version header is read as this revision (Streamable HTTP, protocol version header).
ASSUMED_LEGACY = "2025-03-26"
# JSON-RPC batches came with 2025-03-26 and went with 2025-06-18.
BATCH_VERSION = "2025-03-26"


class Era(enum.Enum):
    """LEGACY has sessions and a handshake; MODERN carries everything in each request."""

    LEGACY = "legacy"
    MODERN = "modern"


def negotiate(requested: str) -> str:
    """The version an `initialize` is answered with: the one asked for, or our newest of that era."""
    return requested if requested in LEGACY_VERSIONS else LATEST_LEGACY
