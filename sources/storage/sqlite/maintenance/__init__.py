"""Backups, schema upgrades and reindexing."""
