"""The supported MCP revisions, in two eras: legacy ones begin with an `initialize` handshake, modern ones do not."""

import enum

MODERN_VERSIONS = ("2026-07-28",)
LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ALL_VERSIONS = (*LEGACY_VERSIONS, *MODERN_VERSIONS)
LATEST_LEGACY = LEGACY_VERSIONS[-1]
# JSON-RPC batches were added in 2025-03-26 and removed in 2025-06-18.
BATCH_VERSION = "2025-03-26"


class Era(enum.Enum):
    """LEGACY has sessions and a handshake; in MODERN every request is self-contained."""

    LEGACY = "legacy"
    MODERN = "modern"


def negotiate(requested: str) -> str:
    """Returns the version to answer `initialize` with: the requested one, or the latest legacy version."""
    return requested if requested in LEGACY_VERSIONS else LATEST_LEGACY
