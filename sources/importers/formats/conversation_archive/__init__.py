"""The interchange format of the conversations API: a zip with one JSON file per conversation, or such a file.
`reader.py` has the format and is also used by the importer `../conversations.py`; `writer.py` and `archive_import.py`
serve the REST API. Unlike the importer, `POST /conversations/import` leaves existing conversations as they are."""
