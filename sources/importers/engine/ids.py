"""Ids of conversations that another memory archived, and of observations. The latter are digits, because a model pays
for each group of three of them what it pays for each one or two characters of a hexadecimal id, and a row of layer 1 is
little more than its id."""

from hashlib import blake2b

from sources.importers.engine.imported_items import stable_uuid

# Among a hundred thousand observations two are alike with a chance of 1 in 200,000; the second would be refused.
_DIGITS = 15


def observation_id(*seeds: str) -> str:
    """The same seeds have the same id."""
    digest = blake2b("\0".join(seeds).encode(), digest_size=16).digest()
    return f"obs-{int.from_bytes(digest) % 10**_DIGITS:0{_DIGITS}d}"


def archived_id(path: str) -> str:
    """Of the conversation that the plugin conversation-memory kept under a path. The path itself is kept nowhere: it
    says where something lay on somebody's disk."""
    return stable_uuid("conversation_memory", "chats", path)
