"""Markdown notes, one file or a whole Obsidian vault: the text stays as it was written, links and all.

What a note says of itself above its text (title, tags, dates) becomes the note's own; of the vault nothing else is
read: no settings, no attachments, nothing from the bin.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from config.errors import InvalidParams, TooLarge
from sources.drafts import NoteDraft
from sources.importers.arrivals import Arrival, Broken, Mark, NoteArrival, Skipped, stable_uuid
from sources.importers.files import (
    changed_at,
    date_of,
    few_tags,
    is_text,
    key_of,
    own_uuid,
    plain_name,
    read_text,
    short_title,
    size_of,
)
from sources.importers.front_matter import lower_keys, split_front_matter, text_of, words_of
from sources.importers.importer import Importer, Limits, Progress, Sight
from sources.importers.sight import files_in

_SUFFIXES = (".md", ".markdown", ".mdown", ".mkd")
_VAULT = ".obsidian"
_CREATED = ("created", "created_at", "date", "date_created", "creation_date")
_LINKS_MAX = 1_000
_FOUND_MAX = 10_000
# Code has its own # and [[. Within a line it is short, so that a megabyte of backticks is not read once for each.
_CODE = re.compile(
    r"^[ ]{0,3}(```+|~~~+).*?(?:^[ ]{0,3}\1|\Z)|(?<!`)(`++)[^\n]{0,1000}?(?<!`)\2(?!`)", re.DOTALL | re.MULTILINE
)
_HEADING = re.compile(r"^#[ \t]+([^\n]+)$", re.MULTILINE)
_TAG = re.compile(r"(?<![^\s(,;>])#([\w/-]*[^\W\d_][\w/-]*|[\w/-]*[_/-][\w/-]*)")
_LINK = re.compile(r"!?\[\[([^\[\]\n]{1,500})\]\]")


def _recognises(sight: Sight) -> float:
    if sight.is_folder:
        return 1.0 if _VAULT in sight.names else 0.0
    return 0.5 if sight.path.suffix.lower() in _SUFFIXES and is_text(sight.head) else 0.0


def _read(path: Path, limits: Limits, progress: Progress, _mark: Mark | None) -> Iterator[Arrival]:
    if not path.is_dir():
        yield NoteArrival(_note(path, _place_in_vault(path) if limits.has_place else None, limits))
        progress(size_of(path))
        return
    read_bytes = 0
    for file in files_in(path):
        yield _arrival(file, plain_name(file.relative_to(path).as_posix()), limits)
        read_bytes += size_of(file)
        progress(read_bytes)


def _arrival(file: Path, place: str, limits: Limits) -> Arrival:
    if file.suffix.lower() not in _SUFFIXES:
        return Skipped("a file of the vault that is no note")
    try:
        return NoteArrival(_note(file, place, limits))
    except (InvalidParams, TooLarge) as error:
        return Broken(place, error.message)
    except OSError as error:
        return Broken(place, f"it cannot be read: {error.strerror or 'the disk failed'}")


def _place_in_vault(path: Path) -> str | None:
    """The name that a note has in the vault it lies in, so that it is the same note, read alone or with the others."""
    resolved = path.resolve()
    vault = next((folder for folder in resolved.parents if (folder / _VAULT).is_dir()), None)
    return None if vault is None else plain_name(resolved.relative_to(vault).as_posix())


def _note(path: Path, place: str | None, limits: Limits) -> NoteDraft:
    text = read_text(path, limits)
    written, body = split_front_matter(text, limits.depth_max)
    own = lower_keys(written)
    outside_code = _CODE.sub(" ", body)
    tags = [
        *words_of(own.get("tags")),
        *words_of(own.get("tag")),
        *(tag.strip("/") for tag in _found(_TAG, outside_code)),
    ]
    return NoteDraft(
        title=short_title(text_of(own.get("title")) or _first_heading(outside_code) or plain_name(path.stem)),
        content=body.strip("\n"),
        tags=few_tags(tags),
        metadata=_metadata(path, place, written, own, outside_code),
        uuid=own_uuid(own.get("uuid")) or stable_uuid("markdown", "notes", place or key_of(path, limits)),
        created_at=_created(own) or changed_at(path, limits),
    )


def _found(wanted: re.Pattern[str], text: str) -> Iterator[str]:
    """More than anybody reads are not looked for: each would take fifty bytes, however short it is."""
    return (found[1] for found in islice(wanted.finditer(text), _FOUND_MAX))


def _first_heading(text: str) -> str:
    found = _HEADING.search(text)
    return found[1].strip().rstrip("#").strip() if found else ""


def _created(own: Mapping[str, Any]) -> str | None:
    return next((when for name in _CREATED if (when := date_of(own.get(name)))), None)


def _metadata(
    path: Path, place: str | None, written: Mapping[str, Any], own: Mapping[str, Any], text: str
) -> dict[str, Any]:
    """Where the note was, what it links to, its other names, and its front matter as it stood there."""
    aliases = [*_names(own.get("aliases")), *_names(own.get("alias"))]
    links = list(dict.fromkeys(_target(link) for link in _found(_LINK, text)))[:_LINKS_MAX]
    found = {"path": place or plain_name(path.name), "links": links, "aliases": aliases, "front_matter": dict(written)}
    return {name: value for name, value in found.items() if value}


def _names(value: Any) -> list[str]:
    """Other names of a note may have spaces in them."""
    parts = value.split(",") if isinstance(value, str) else value
    return [part.strip() for part in parts or () if isinstance(part, str) and part.strip()]


def _target(link: str) -> str:
    """What a link leads to, without the words that are shown for it."""
    return link.partition("|")[0].strip()


IMPORTER = Importer(
    name="markdown",
    title="Markdown notes, Obsidian vault",
    recognises=_recognises,
    read=_read,
    suffixes=_SUFFIXES,
)
