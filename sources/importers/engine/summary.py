"""The result of an import: how many items were new, updated or skipped, and what went wrong where."""

import re
from typing import get_args

import msgspec
from msgspec import Struct

from config.errors import InvalidParams, TooLarge
from sources.drafts import UpsertOutcome
from sources.importers.engine.archives import open_archive
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import describe_read_error, read_bytes
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.png_texts import SIGNATURE, require_complete
from sources.importers.engine.table_reader import require_readable

OUTCOMES: tuple[UpsertOutcome, ...] = get_args(UpsertOutcome)
# The noun that a count refers to is the last word before one of these.
_AFTER_NOUN = re.compile(r" (?:of|in|from|with|without|not|about|other) | \(|\Z")


class ImportProblem(Struct, frozen=True):
    """A file or item that could not be imported. `location` is empty for a problem with the whole file."""

    file: str
    location: str
    problem: str


class OutcomeCounts(Struct):
    """Items of one kind by outcome. `kept` items are newer in the library than in the file. `deleted` items were
    deleted in the library earlier and stay deleted. Items in `conflict` keep the edits made in the library; only
    followed sources have them."""

    new: int = 0
    updated: int = 0
    unchanged: int = 0
    kept: int = 0
    deleted: int = 0
    conflict: int = 0
    refused: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, outcome) for outcome in OUTCOMES)

    def add(self, outcome: UpsertOutcome, count: int = 1) -> None:
        setattr(self, outcome, getattr(self, outcome) + count)


class ImportSummary(Struct, kw_only=True):
    """`files` were opened; `failed_files` could not be read, or not to the end. `kinds` counts items by kind, with
    messages counted separately from their chats; `failed_items` counts those that could not be imported. `problems`
    holds the first of these failures. `doubtful_items` were imported but may be wrong; `doubts` says why for the first
    of them."""

    files: int = 0
    failed_files: int = 0
    failed_items: int = 0
    doubtful_items: int = 0
    kinds: dict[str, OutcomeCounts] = {}
    skipped: dict[str, int] = {}
    problems: list[ImportProblem] = []
    doubts: list[ImportProblem] = []

    @property
    def failures(self) -> int:
        return self.failed_files + self.failed_items

    @property
    def is_failed(self) -> bool:
        """Whether the import failed as a whole: there was nothing to read, or nothing could be read."""
        if not self.failures:
            return not self.files
        # Failures next to items that were imported are problems of the file, not a failed import.
        return all(counts.total == counts.refused for counts in self.kinds.values())

    def counts(self, kind: str) -> OutcomeCounts:
        return self.kinds.setdefault(kind, OutcomeCounts())

    def skip(self, reason: str, count: int = 1) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + count

    def add(self, other: "ImportSummary") -> None:
        self.files += other.files
        self.failed_files += other.failed_files
        self.failed_items += other.failed_items
        self.doubtful_items += other.doubtful_items
        self.problems += other.problems
        self.doubts += other.doubts
        for reason, count in other.skipped.items():
            self.skip(reason, count)
        for kind, counts in other.kinds.items():
            for outcome in OUTCOMES:
                self.counts(kind).add(outcome, getattr(counts, outcome))


def count_reason(count: int, reason: str) -> str:
    """Formats a skip reason with its count: `1 empty message`, `2,000 messages of a deleted conversation`."""
    if count == 1:
        return f"1 {reason}"
    boundary = _AFTER_NOUN.search(reason)
    end = boundary.start() if boundary else len(reason)
    noun, rest = reason[:end], reason[end:]
    is_regular = not noun.endswith("y") or noun[-2:-1] in "aeiou"
    plural = f"{noun}s" if is_regular else f"{noun.removesuffix('y')}ies"
    return f"{count:,} {plural}{rest}"


# -- damage ------------------------------------------------------------------------------------------------------------
# Checks why a file that looks like a known type cannot be read.
#
# Damaged files are reported as problems, while files of unsupported formats are only counted. Folders contain
# thousands of both, so these checks read as little as possible.

# Images that programs save under the wrong suffix: JPEG, GIF, WebP and other RIFF files, BMP, TIFF, HEIF and AVIF.
_IMAGE_STARTS = (b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*")
# A string, a comment, or a comma before a closing bracket: what JSON with comments allows beyond JSON.
_JSON_WITH_COMMENTS = re.compile(
    rb'"(?>(?:[^"\\]|\\.)*)(?:"|\Z)|(?P<comment>//[^\n]*+|/\*(?>(?:[^*]|\*(?!/))*)(?:\*/|\Z))|(?P<comma>,(?=\s*+[}\]]))',
    re.DOTALL,
)
_TEXT_SUFFIXES = (
    *(".md", ".markdown", ".mdown", ".mkd", ".txt", ".text", ".html", ".htm", ".xhtml"),
    *(".yaml", ".yml", ".csv", ".tsv", ".srt", ".vtt", ".sbv", ".org", ".rst", ".rtf"),
)


def find_damage(probe: FileProbe, limits: ImportLimits) -> str | None:
    """Describes the damage, or returns None if the file appears intact."""
    try:
        suffix = probe.suffix
        if probe.is_zip or suffix in (".zip", ".docx", ".pptx", ".xlsx", ".odt", ".epub", ".charx"):
            with open_archive(probe.path, limits):
                pass
        elif probe.head.startswith(SIGNATURE) or (
            suffix in (".png", ".apng") and not probe.head.startswith(_IMAGE_STARTS) and probe.head[4:8] != b"ftyp"
        ):
            require_complete(probe.path)
        elif probe.is_database:
            require_readable(probe.path)
        elif suffix in (".json", ".json3"):
            # Accepts JSON with comments and trailing commas, as in `tsconfig.json`.
            data = read_bytes(probe.path, limits.line_max_bytes)
            try:
                _require_json(data)
            except InvalidParams:
                # Commas are removed last, because a comment may follow one.
                without_comments = _JSON_WITH_COMMENTS.sub(lambda token: b" " if token["comment"] else token[0], data)
                _require_json(
                    _JSON_WITH_COMMENTS.sub(lambda token: b" " if token["comma"] else token[0], without_comments)
                )
        elif suffix == ".jsonl":
            # Checks the first line only; an importer reports errors in later lines.
            first, newline, _ = probe.head.partition(b"\n")
            if newline:
                _require_json(first)
        elif suffix == ".pdf":
            # A PDF is recognized by its header alone, so this file has none.
            raise InvalidParams("not a PDF file")
        elif suffix in _TEXT_SUFFIXES and not probe.is_text:
            raise InvalidParams("expected text, got a NUL character")
    except InvalidParams as error:
        return error.message
    except TooLarge as error:
        # A PNG or JSON file that is too large to check is not damaged; an oversized archive is rejected.
        return error.message if probe.is_zip else None
    except OSError as error:
        return describe_read_error(error)
    return None


def _require_json(data: bytes) -> None:
    try:
        msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams("JSON is malformed or truncated") from error
