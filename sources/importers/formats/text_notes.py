"""Files that become a note each: Org mode, reStructuredText and Jupyter notebooks."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from config.errors import InvalidParams
from config.numbers import replace_unstorable
from sources.importers.engine.events import SkippedItem, imported_note, stable_uuid
from sources.importers.engine.importer import Events, FileImporter, FileProbe, InputFile
from sources.importers.engine.markdown_text import first_heading, read_org_header, remove_code
from sources.importers.engine.values import Fields, clean_line, stored_date

# -- Org mode ----------------------------------------------------------------------------------------------------------
# Org mode: every `.org` file becomes a note, with its text as written.


class OrgImporter(FileImporter):
    name = "org"
    title = "Org mode"
    suffixes = (".org",)

    def recognizes(self, probe: FileProbe) -> float:
        return 0.5 if probe.suffix in self.suffixes and probe.is_text else 0.0

    def read_file(self, file: InputFile) -> Events:
        text = file.text()
        header = read_org_header(text)
        yield imported_note(
            header.uuid or stable_uuid("org", "notes", file.key),
            header.title or file.stem,
            text.strip("\n"),
            tags=header.tags,
            created=header.created or file.modified_at,
            path=file.name,
            author=clean_line(header.author),
        )


# -- reStructuredText --------------------------------------------------------------------------------------------------
# reStructuredText: every `.rst` file becomes a note, with its text as written. Directives are not executed.

# The title and the fields about the document are at the top.
_HEAD_LINES = 200
_FIELD = re.compile(r":([\w -]{1,40}): ([^\n]{1,1000})")
_TAGS_DIRECTIVE = ".. tags::"


class RestructuredTextImporter(FileImporter):
    name = "rst"
    title = "reStructuredText"
    suffixes = (".rst", ".rest")

    def recognizes(self, probe: FileProbe) -> float:
        return 0.5 if probe.suffix in self.suffixes and probe.is_text else 0.0

    def read_file(self, file: InputFile) -> Events:
        text = file.text()
        lines = [line.rstrip() for line in text.split("\n", _HEAD_LINES)[:_HEAD_LINES]]
        fields = {match[1].lower(): match[2] for line in lines if (match := _FIELD.fullmatch(line))}
        # The first line that is underlined with one repeated character, at least as long as the line.
        titles = (
            line.strip()
            for line, below in pairwise(lines)
            if line.strip() and not _is_adornment(line) and _is_adornment(below) and len(below) >= len(line)
        )
        tag_lists = [fields.get(field, "") for field in ("tags", "keywords")]
        tag_lists += [line.removeprefix(_TAGS_DIRECTIVE) for line in lines if line.startswith(_TAGS_DIRECTIVE)]
        yield imported_note(
            stable_uuid("rst", "notes", file.key),
            next(titles, "") or file.stem,
            text.strip("\n"),
            tags=[tag for tags in tag_lists for tag in tags.split(",")],
            created=stored_date(fields.get("date")) or file.modified_at,
            path=file.name,
            author=clean_line(fields.get("author")),
        )


def _is_adornment(line: str) -> bool:
    return len(line) > 1 and len(set(line)) == 1 and not line[0].isalnum() and not line[0].isspace()


# -- Jupyter notebooks -------------------------------------------------------------------------------------------------
# Jupyter notebooks: the text and code of their cells, and the text that the code printed, as one note.

# Results beyond this length are data rather than text.
_OUTPUT_MAX_CHARS = 4_000


class JupyterImporter(FileImporter):
    name = "jupyter"
    title = "Jupyter notebook (ipynb)"
    suffixes = (".ipynb",)
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        """A notebook's version is at its end, so cells and the suffix count too."""
        is_notebook = probe.suffix in self.suffixes and b'"cell_type"' in probe.head
        return 0.9 if probe.is_json(b'"cells"') and (is_notebook or b'"nbformat"' in probe.head) else 0.0

    def read_file(self, file: InputFile) -> Events:
        notebook = Fields.of(file.json())
        if "nbformat" not in notebook:
            raise InvalidParams("not a Jupyter notebook")
        metadata = notebook.nested("metadata")
        info, kernel = metadata.nested("language_info"), metadata.nested("kernelspec")
        language = info.line("name") or kernel.line("language")
        # Until version 4, cells were inside worksheets.
        sheets = (notebook, *notebook.objects("worksheets"))
        cells = (cell for sheet in sheets for cell in sheet.objects("cells"))
        content = replace_unstorable("\n\n".join(part for cell in cells for part in _cell_parts(cell, language)))
        if not content:
            yield SkippedItem("notebook without text")
            return
        yield imported_note(
            stable_uuid("jupyter", "notes", file.key),
            metadata.line("title") or first_heading(remove_code(content)) or file.stem,
            content,
            created=file.modified_at,
            path=file.name,
            language=language,
            authors=[author.line("name") for author in metadata.objects("authors")],
        )


def _cell_parts(cell: Fields, language: str) -> Iterator[str]:
    source = _joined(cell.get("source") or cell.get("input")).strip("\n")
    if cell.get("cell_type") == "code":
        if source.strip():
            yield _fenced(source, language)
        for output in cell.objects("outputs"):
            # What was printed or returned as text, or the error. Images and web pages are left out.
            if output.get("output_type") in ("error", "pyerr"):
                text = clean_line(f"{output.get('ename')}: {output.get('evalue')}")
            else:
                text = _joined(output.get("text") or output.nested("data").get("text/plain")).strip("\n")
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
