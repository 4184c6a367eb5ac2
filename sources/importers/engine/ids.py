"""Ids of observations, and of conversations archived by the conversation-memory plugin.

Observation ids consist of digits: models need about one token for three digits, but one for every one or two
hexadecimal characters, and a search result of layer 1 is little more than an id.
"""

from hashlib import blake2b

from sources.importers.engine.files import stable_uuid

# The chance of a collision among 100,000 observations is 1 in 200,000; the second one would be rejected.
_DIGITS = 15


def observation_id(*parts: str) -> str:
    """Returns the same id for the same parts."""
    digest = blake2b("\0".join(parts).encode(), digest_size=16).digest()
    return f"obs-{int.from_bytes(digest) % 10**_DIGITS:0{_DIGITS}d}"


def imported_observation_id(original_id: str) -> str:
    """Returns the id of the observation that conversation-memory stored with another id."""
    return observation_id("imported", original_id)


def archived_conversation_id(path: str) -> str:
    """Returns the id of the conversation that conversation-memory archived under a path. The path itself is not stored,
    because it reveals where files are on the user's disk."""
    return stable_uuid("conversation_memory", "chats", path)
