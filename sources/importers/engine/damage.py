"""Checks why a file that looks like a known type cannot be read.

Damaged files are reported as problems, while files of unsupported formats are only counted. Folders contain thousands
of both, so these checks read as little as possible.
"""

import msgspec

from config.errors import InvalidParams, TooLarge
from sources.importers.engine.archives import is_zip, open_archive
from sources.importers.engine.databases import is_database, require_readable
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import is_text, read_bytes
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.png_texts import SIGNATURE, require_complete

_ZIP_SUFFIXES = (".zip", ".docx", ".pptx", ".epub", ".charx")
_PNG_SUFFIXES = (".png", ".apng")
_JSON_SUFFIXES = (".json", ".json3")
_JSONL_SUFFIX = ".jsonl"
_PDF_SUFFIX = ".pdf"
_TEXT_SUFFIXES = (
    *(".md", ".markdown", ".mdown", ".mkd", ".txt", ".text", ".html", ".htm", ".xhtml"),
    *(".yaml", ".yml", ".csv", ".tsv", ".srt", ".vtt"),
)


def find_damage(probe: FileProbe, limits: ImportLimits) -> str | None:
    """Describes the damage, or returns None if the file appears intact."""
    try:
        _require_intact(probe, probe.path.suffix.lower(), limits)
    except InvalidParams as error:
        return error.message
    except TooLarge as error:
        # A PNG or JSON file that is too large to check is not damaged; an oversized archive is rejected.
        return error.message if is_zip(probe.head) else None
    except OSError as error:
        return f"cannot be read: {error.strerror or 'disk error'}"
    return None


def _require_intact(probe: FileProbe, suffix: str, limits: ImportLimits) -> None:
    if is_zip(probe.head) or suffix in _ZIP_SUFFIXES:
        with open_archive(probe.path, limits):
            pass
    elif probe.head.startswith(SIGNATURE) or suffix in _PNG_SUFFIXES:
        require_complete(probe.path)
    elif is_database(probe):
        require_readable(probe.path)
    elif suffix in _JSON_SUFFIXES:
        _require_json(read_bytes(probe.path, limits.line_max_bytes))
    elif suffix == _JSONL_SUFFIX:
        _require_json_line(probe.head)
    elif suffix == _PDF_SUFFIX:
        # A PDF is recognized by its header alone, so this file has none.
        raise InvalidParams("not a PDF file")
    elif suffix in _TEXT_SUFFIXES and not is_text(probe.head):
        raise InvalidParams("expected text, got a NUL character")


def _require_json_line(head: bytes) -> None:
    """Checks the first line only; an importer reports errors in later lines."""
    first, newline, _ = head.partition(b"\n")
    if newline:
        _require_json(first)


def _require_json(data: bytes) -> None:
    try:
        msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams("JSON is malformed or truncated") from error
