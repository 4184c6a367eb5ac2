"""Imports files and exports of other programs into a library. `formats/` has one module or package per format."""

# Read first: `engine/importer.py`, what a format implements; `formats/roam.py`, a short one; `engine/import_runner.py`,
# how items are written; and `reader.py`, the confined process in which importers run.
#
# An import crosses three processes. The server writes the library. The reader finds, recognizes and reads files, and
# may open no others. A document is parsed in a third process, which the server starts because the reader may not.
#
# Nothing here knows a user: the caller passes a library. Importers yield drafts with stable ids, so that an import can
# be repeated or completed at any time.
