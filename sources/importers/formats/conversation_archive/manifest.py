"""The manifest of an archive of conversations."""

import msgspec
from msgspec import Struct

from config.errors import InvalidParams

MANIFEST = "manifest.json"
MANIFEST_MAX_BYTES = 16 << 20
FORMAT = "florilegium-conversations"
VERSION = 1


class ArchiveManifest(Struct, frozen=True, kw_only=True):
    """The contents of an archive. It lists namespaces, because some may have no conversation."""

    format: str = FORMAT
    version: int = VERSION
    conversations: int = 0
    messages: int = 0
    namespaces: tuple[str, ...] = ()


def parse_manifest(data: bytes) -> ArchiveManifest:
    """Raises InvalidParams for another format or version."""
    try:
        manifest = msgspec.json.decode(data, type=ArchiveManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise invalid_manifest() from error
    if manifest.format != FORMAT or manifest.version != VERSION:
        raise InvalidParams(
            f"{MANIFEST}: expected {FORMAT!r} version {VERSION}, got {manifest.format[:60]!r} version "
            f"{manifest.version}"
        )
    return manifest


def invalid_manifest() -> InvalidParams:
    return InvalidParams(f"{MANIFEST}: not the manifest of a conversation export")
