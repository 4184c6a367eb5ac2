"""Shared by all importers: file discovery, the import runner, and readers for common containers. Read `files` first."""
