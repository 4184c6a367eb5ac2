"""The PostgreSQL engine: implements the storage contract with tables that all users share."""

# Read `libraries` first, then `database`: a call gets the library of its user, whose reads and writes become jobs.
# `connection` runs them on threads and is what their work gets. `tables` declares the tables, `schema` creates them and
# finds the tenant of a user, and `statements` makes every statement name the tenant. The full-text index is in `index`,
# searches in it in `search`, and embeddings in `vectors`.

from sources.storage.postgres.database import PostgresOptions
from sources.storage.postgres.libraries import PostgresLibraries

__all__ = ["PostgresLibraries", "PostgresOptions"]
