"""The interchange format of the conversations API: a zip archive or single JSON files."""
