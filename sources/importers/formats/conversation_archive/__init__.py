"""The interchange format of the conversations API: a zip with one JSON file per conversation, or such a file."""
