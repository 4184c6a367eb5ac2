"""Checks why a file that looks like a known type cannot be read.

Damaged files are reported as problems, while files of unsupported formats are only counted. Folders contain thousands
of both, so these checks read as little as possible.
"""

import re

import msgspec

from config.errors import InvalidParams, TooLarge
from sources.importers.engine.archives import is_zip, open_archive
from sources.importers.engine.databases import is_database, require_readable
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import is_text, read_bytes
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.png_texts import SIGNATURE, require_complete

# Images that programs save under the wrong suffix: JPEG, GIF, WebP and other RIFF files, BMP, TIFF, HEIF and AVIF.
_IMAGE_STARTS = (b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*")
_HEIF_MARK = b"ftyp"
# A string, a comment, or a comma before a closing bracket: what JSON with comments allows beyond JSON.
_JSON_WITH_COMMENTS = re.compile(
    rb'"(?:[^"\\]|\\.)*+(?:"|\Z)|(?P<comment>//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z))|(?P<comma>,(?=\s*+[}\]]))',
    re.DOTALL,
)
_ZIP_SUFFIXES = (".zip", ".docx", ".pptx", ".xlsx", ".odt", ".epub", ".charx")
_PNG_SUFFIXES = (".png", ".apng")
_JSON_SUFFIXES = (".json", ".json3")
_JSONL_SUFFIX = ".jsonl"
_PDF_SUFFIX = ".pdf"
_TEXT_SUFFIXES = (
    *(".md", ".markdown", ".mdown", ".mkd", ".txt", ".text", ".html", ".htm", ".xhtml"),
    *(".yaml", ".yml", ".csv", ".tsv", ".srt", ".vtt", ".sbv", ".org", ".rst", ".rtf"),
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
    elif probe.head.startswith(SIGNATURE) or (suffix in _PNG_SUFFIXES and not _is_other_image(probe.head)):
        require_complete(probe.path)
    elif is_database(probe):
        require_readable(probe.path)
    elif suffix in _JSON_SUFFIXES:
        _require_json_or_comments(read_bytes(probe.path, limits.line_max_bytes))
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


def _is_other_image(head: bytes) -> bool:
    return head.startswith(_IMAGE_STARTS) or head[4:8] == _HEIF_MARK


def _require_json_or_comments(data: bytes) -> None:
    """Accepts JSON with comments and trailing commas, as in `tsconfig.json`."""
    try:
        _require_json(data)
    except InvalidParams:
        # Commas are removed last, because a comment may follow one.
        without_comments = _JSON_WITH_COMMENTS.sub(lambda token: b" " if token["comment"] else token[0], data)
        _require_json(_JSON_WITH_COMMENTS.sub(lambda token: b" " if token["comma"] else token[0], without_comments))


def _require_json(data: bytes) -> None:
    try:
        msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams("JSON is malformed or truncated") from error
