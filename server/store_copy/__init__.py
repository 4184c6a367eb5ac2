"""Copies a deployment between SQLite and PostgreSQL, table by table, with checksums."""
