"""The text of a note as a Markdown file. The front matter of an existing file is kept as it is written."""

import re
from collections.abc import Sequence

import msgspec

from sources.importers.engine.front_matter import FRONT_MATTER_MAX_CHARS
from sources.records import Note

# As the importer recognizes it.
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)(?<=\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_UNSAFE_IN_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|#^\[\]]+')
_NAME_MAX_BYTES = 120


def split_file(text: str) -> tuple[str, str]:
    """Returns the lines of the front matter, without the fences, and the body."""
    match = _FRONT_MATTER.match(text[: FRONT_MATTER_MAX_CHARS + 10])
    return (match[1], text[match.end() :]) if match else ("", text)


def with_body(text: str, body: str) -> str:
    """Replaces the body of a file. Blank lines after the front matter and at the end of the file are kept."""
    front_matter, old_body = split_file(text)
    head = text[: len(text) - len(old_body)]
    start = old_body[: len(old_body) - len(old_body.lstrip("\n"))]
    end = old_body[len(old_body.rstrip("\n")) :] or "\n"
    return f"{head}{start}{body.strip(chr(10))}{end}" if front_matter or old_body.strip() else f"{head}{body}\n"


def with_fields(text: str, **fields: str | Sequence[str]) -> str:
    """Sets fields of the front matter. Other lines stay as they are."""
    front_matter, body = split_file(text)
    for name, value in fields.items():
        front_matter = _without_field(front_matter, name) + f"{name}: {_scalar(value)}\n"
    return f"---\n{front_matter}---\n{body}"


def new_file(note: Note) -> str:
    """The id in the front matter connects the file with the note."""
    fields: dict[str, str | Sequence[str]] = {"uuid": note.uuid, "title": note.title, "created": note.created_at}
    if note.tags:
        fields["tags"] = note.tags
    return with_fields(f"{note.content.strip(chr(10))}\n", **fields)


def file_name(title: str) -> str:
    """Returns a name that every file system accepts, without the suffix."""
    name = _UNSAFE_IN_NAMES.sub(" ", title).strip(" .")
    encoded = name.encode()[:_NAME_MAX_BYTES]
    return encoded.decode(errors="ignore").strip(" .") or "Untitled"


def _without_field(front_matter: str, name: str) -> str:
    """Removes a field with its continuation lines, which are indented or list items."""
    kept: list[str] = []
    blank: list[str] = []
    is_inside = False
    for line in front_matter.splitlines(keepends=True):
        if is_inside and not line.strip():
            blank.append(line)
            continue
        field, separator, _ = line.partition(":")
        is_continued = is_inside and line.startswith((" ", "\t", "- ", "-\t"))
        kept += () if is_continued else blank
        blank = []
        is_inside = is_continued or (bool(separator) and field.rstrip(" \t").lower() == name.lower())
        kept += () if is_inside else (line,)
    return "".join(kept + blank)


def _scalar(value: str | Sequence[str]) -> str:
    """JSON strings and lists are valid YAML."""
    return msgspec.json.encode(value if isinstance(value, str) else list(value)).decode()
