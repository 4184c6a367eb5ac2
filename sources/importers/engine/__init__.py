"""Shared by all importers: file discovery, the import runner, and readers for common containers."""

# Read first: `files.py`, what importers yield; `discovery.py`, which importer reads which file; `import_runner.py`.
#
# Containers: `archives.py` (zip, tar), `file_trees.py` (a zip or the folder it was unpacked to), `export_files.py`
# (JSON exports), `json_stream.py` (JSON larger than memory), `table_reader.py` (SQLite, CSV), `png_texts.py`.
#
# Values: `values.py` and `chat_messages.py` turn what other programs wrote into drafts.
#
# Process: `reader_process.py` is the server's side of `../reader.py`, with the messages in `reader_messages.py`.
#
# Every size and count is limited by `limits.py`: a file of a few megabytes can hold millions of records.
