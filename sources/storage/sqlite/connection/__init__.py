"""Connections, database files and the pool of open libraries."""
