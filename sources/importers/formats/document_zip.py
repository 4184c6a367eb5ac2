"""A zip of documents: every document in it becomes a media item, as if it had been imported alone."""

import posixpath
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from config.errors import InvalidParams
from sources.importers.engine.archives import is_visible, is_zip
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.file_trees import FileTree, open_tree
from sources.importers.engine.files import FailedItem, SkippedItem, file_key
from sources.importers.engine.importer import ImportEvent, ImportLimits, ParsingImporter, ProgressCallback, ReadPosition
from sources.importers.formats.documents import IMPORTER as DOCUMENTS
from sources.importers.formats.embedded_documents import EmbeddedDocument, is_document, read_embedded


class DocumentZipImporter(ParsingImporter):
    name = "document_zip"
    title = "Zip of documents"
    suffixes = (".zip",)

    def recognizes(self, probe: FileProbe) -> float:
        """Stays below the formats whose exports are zips with documents in them."""
        if probe.is_folder or not is_zip(probe.head):
            return 0.0
        # Most archives contain some text, so at least half of the files must be documents.
        files = [name for name in probe.names if is_visible(name)]
        return 0.25 if 0 < len(files) <= 2 * sum(map(_has_document_suffix, files)) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        key = file_key(path, limits) if limits.has_stable_path else None
        with open_tree(path, limits, progress) as tree:
            for name in tree.names:
                yield self._read_file(tree, name, key, limits)

    def _read_file(self, tree: FileTree, name: str, key: str | None, limits: ImportLimits) -> ImportEvent:
        if not _has_document_suffix(name):
            return SkippedItem("file in the archive not containing a document")
        try:
            data = tree.read(name, limits.line_max_bytes)
        except InvalidParams as error:
            return FailedItem(name, error.message)
        # Skipped before its kind is looked for: a zip can have thousands of empty files.
        if not data:
            return SkippedItem("document without text")
        if not is_document(name, data):
            return SkippedItem("file in the archive not containing a document")
        own_key = sha256(data).hexdigest() if key is None else f"{key}/{name}"
        document = EmbeddedDocument(name, data, self.name, own_key, {"path": name}, tree.modified_at(name))
        return read_embedded(document, self._parse, limits)


IMPORTER = DocumentZipImporter()


def _has_document_suffix(name: str) -> bool:
    return posixpath.splitext(name)[1].lower() in DOCUMENTS.suffixes
