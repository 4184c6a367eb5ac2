"""Files that become a note each: Org mode, reStructuredText and Jupyter notebooks."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from config.errors import InvalidParams
from config.numbers import replace_unstorable
from sources.drafts import NoteDraft
from sources.importers.engine.export_files import is_json
from sources.importers.engine.files import (
    ImportedNote,
    SkippedItem,
    file_key,
    file_size,
    is_text,
    modified_at,
    printable_name,
    read_json,
    read_text,
    stable_uuid,
)
from sources.importers.engine.importer import Events, FileProbe, Importer, ImportLimits, ProgressCallback, StartPosition
from sources.importers.engine.markdown_text import first_heading, read_org_header, remove_code
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import clean_line, clean_tags, object_or_empty, objects, short_title, stored_date

# -- Org mode ----------------------------------------------------------------------------------------------------------
# Org mode: every `.org` file becomes a note, with its text as written.


class OrgImporter(Importer):
    name = "org"
    title = "Org mode"
    suffixes = (".org",)

    def recognizes(self, probe: FileProbe) -> float:
        is_org = not probe.is_folder and probe.path.suffix.lower() in self.suffixes
        return 0.5 if is_org and is_text(probe.head) else 0.0

    def read(self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: StartPosition) -> Events:
        text = read_text(path, limits)
        header = read_org_header(text)
        name = printable_name(path.name)
        draft = NoteDraft(
            title=short_title(header.title) or short_title(printable_name(path.stem)),
            content=text.strip("\n"),
            tags=clean_tags(header.tags),
            metadata=compact_metadata(path=name, author=clean_line(header.author)),
            uuid=header.uuid or stable_uuid("org", "notes", file_key(path, limits)),
            created_at=header.created or modified_at(path, limits),
        )
        yield ImportedNote(draft)
        progress(file_size(path))


# -- reStructuredText --------------------------------------------------------------------------------------------------
# reStructuredText: every `.rst` file becomes a note, with its text as written. Directives are not executed.

# The title and the fields about the document are at the top.
_HEAD_LINES = 200
_FIELD = re.compile(r":([\w -]{1,40}): ([^\n]{1,1000})")
_TAGS_DIRECTIVE = ".. tags::"
_TAG_FIELDS = ("tags", "keywords")


class RestructuredTextImporter(Importer):
    name = "rst"
    title = "reStructuredText"
    suffixes = (".rst", ".rest")

    def recognizes(self, probe: FileProbe) -> float:
        has_suffix = not probe.is_folder and probe.path.suffix.lower() in self.suffixes
        return 0.5 if has_suffix and is_text(probe.head) else 0.0

    def read(self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: StartPosition) -> Events:
        text = read_text(path, limits)
        lines = [line.rstrip() for line in text.split("\n", _HEAD_LINES)[:_HEAD_LINES]]
        fields = {match[1].lower(): match[2] for line in lines if (match := _FIELD.fullmatch(line))}
        # The first line that is underlined with one repeated character, at least as long as the line.
        titles = (
            line.strip()
            for line, below in pairwise(lines)
            if line.strip() and not _is_adornment(line) and _is_adornment(below) and len(below) >= len(line)
        )
        tag_lists = [fields.get(field, "") for field in _TAG_FIELDS]
        tag_lists += [line.removeprefix(_TAGS_DIRECTIVE) for line in lines if line.startswith(_TAGS_DIRECTIVE)]
        draft = NoteDraft(
            title=short_title(next(titles, "")) or short_title(printable_name(path.stem)),
            content=text.strip("\n"),
            tags=clean_tags([tag for tags in tag_lists for tag in tags.split(",")]),
            metadata=compact_metadata(path=printable_name(path.name), author=clean_line(fields.get("author"))),
            uuid=stable_uuid("rst", "notes", file_key(path, limits)),
            created_at=stored_date(fields.get("date")) or modified_at(path, limits),
        )
        yield ImportedNote(draft)
        progress(file_size(path))


def _is_adornment(line: str) -> bool:
    return len(line) > 1 and len(set(line)) == 1 and not line[0].isalnum() and not line[0].isspace()


# -- Jupyter notebooks -------------------------------------------------------------------------------------------------
# Jupyter notebooks: the text and code of their cells, and the text that the code printed, as one note.

# Results beyond this length are data rather than text.
_OUTPUT_MAX_CHARS = 4_000


class JupyterImporter(Importer):
    name = "jupyter"
    title = "Jupyter notebook (ipynb)"
    suffixes = (".ipynb",)
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        """A notebook's version is at its end, so cells and the suffix count too."""
        if probe.is_folder or not is_json(probe.head) or b'"cells"' not in probe.head:
            return 0.0
        has_suffix = probe.path.suffix.lower() in self.suffixes
        return 0.9 if b'"nbformat"' in probe.head or (has_suffix and b'"cell_type"' in probe.head) else 0.0

    def read(self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: StartPosition) -> Events:
        notebook = read_json(path, limits)
        if not isinstance(notebook, Mapping) or "nbformat" not in notebook:
            raise InvalidParams("not a Jupyter notebook")
        metadata = object_or_empty(notebook.get("metadata"))
        info, kernel = object_or_empty(metadata.get("language_info")), object_or_empty(metadata.get("kernelspec"))
        language = clean_line(info.get("name")) or clean_line(kernel.get("language"))
        # Until version 4, cells were inside worksheets.
        sheets = (notebook, *objects(notebook.get("worksheets")))
        cells = (cell for sheet in sheets for cell in objects(sheet.get("cells")))
        content = "\n\n".join(part for cell in cells for part in _cell_parts(cell, language))
        if content:
            yield ImportedNote(_note_draft(path, notebook, replace_unstorable(content), language, limits))
        else:
            yield SkippedItem("notebook without text")
        progress(file_size(path))


def _cell_parts(cell: Mapping[str, Any], language: str) -> Iterator[str]:
    source = _joined(cell.get("source") or cell.get("input")).strip("\n")
    if cell.get("cell_type") == "code":
        if source.strip():
            yield _fenced(source, language)
        for output in objects(cell.get("outputs")):
            # What was printed or returned as text, or the error. Images and web pages are left out.
            if output.get("output_type") in ("error", "pyerr"):
                text = clean_line(f"{output.get('ename')}: {output.get('evalue')}")
            else:
                text = _joined(output.get("text") or object_or_empty(output.get("data")).get("text/plain")).strip("\n")
                text = text if len(text) <= _OUTPUT_MAX_CHARS else f"{text[:_OUTPUT_MAX_CHARS]}\n…"
            if text:
                yield _fenced(text, "")
    elif source.strip():
        yield source


def _fenced(text: str, language: str) -> str:
    # A cell may contain Markdown with a fence of its own.
    fence = "```" if "```" not in text else "~~~~"
    return f"{fence}{language}\n{text}\n{fence}"


def _joined(value: Any) -> str:
    """Texts are strings or lists of lines."""
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""


def _note_draft(
    path: Path, notebook: Mapping[str, Any], content: str, language: str, limits: ImportLimits
) -> NoteDraft:
    metadata = object_or_empty(notebook.get("metadata"))
    title = clean_line(metadata.get("title")) or first_heading(remove_code(content)) or printable_name(path.stem)
    authors: Sequence[str] = [clean_line(author.get("name")) for author in objects(metadata.get("authors"))]
    return NoteDraft(
        title=short_title(title),
        content=content,
        metadata=compact_metadata(path=printable_name(path.name), language=language, authors=authors),
        uuid=stable_uuid("jupyter", "notes", file_key(path, limits)),
        created_at=modified_at(path, limits),
    )
