"""Why a file that calls itself something cannot be read as that: a broken one is told, where one of no format is only
counted. A folder holds thousands of both, so little of each is looked at."""

import msgspec

from config.errors import InvalidParams, TooLarge
from sources.importers.engine.archives import is_zip, open_archive
from sources.importers.engine.databases import is_database, require_readable
from sources.importers.engine.files import is_text, read_bytes
from sources.importers.engine.importer import FileProbe, ImportLimits
from sources.importers.engine.png_texts import SIGNATURE, require_whole

_ARCHIVES = (".zip", ".docx", ".pptx", ".epub", ".charx")
_PICTURES = (".png", ".apng")
_VALUES = (".json", ".json3")
_LINES = ".jsonl"
_PAGES = ".pdf"
_TEXTS = (
    *(".md", ".markdown", ".mdown", ".mkd", ".txt", ".text", ".html", ".htm", ".xhtml"),
    *(".yaml", ".yml", ".csv", ".tsv", ".srt", ".vtt"),
)


def damage_of(probe: FileProbe, limits: ImportLimits) -> str | None:
    """A sentence; none where the file is whole, as far as anybody here can tell."""
    try:
        _require_whole(probe, probe.path.suffix.lower(), limits)
    except InvalidParams as error:
        return error.message
    except TooLarge as error:
        # A picture or a value that is too large for a look is not broken for that; an archive is refused.
        return error.message if is_zip(probe.head) else None
    except OSError as error:
        return f"it cannot be read: {error.strerror or 'the disk failed'}"
    return None


def _require_whole(probe: FileProbe, suffix: str, limits: ImportLimits) -> None:
    if is_zip(probe.head) or suffix in _ARCHIVES:
        with open_archive(probe.path, limits):
            pass
    elif probe.head.startswith(SIGNATURE) or suffix in _PICTURES:
        require_whole(probe.path)
    elif is_database(probe):
        require_readable(probe.path)
    elif suffix in _VALUES:
        _require_json(read_bytes(probe.path, limits.line_max_bytes))
    elif suffix == _LINES:
        _require_lines(probe.head)
    elif suffix == _PAGES:
        # A PDF is recognised by its mark alone.
        raise InvalidParams("the document: got something else, expected a PDF")
    elif suffix in _TEXTS and not is_text(probe.head):
        raise InvalidParams("the file: got a NUL character, expected text")


def _require_lines(head: bytes) -> None:
    """The first is enough: what is wrong further on would be told by whoever reads the file."""
    first, end, _ = head.partition(b"\n")
    if end:
        _require_json(first)


def _require_json(data: bytes) -> None:
    try:
        msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams("JSON: got something that is not whole, expected a value") from error
