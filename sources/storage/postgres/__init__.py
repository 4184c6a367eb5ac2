"""The PostgreSQL engine: implements the storage contract with one schema per user."""

from sources.storage.postgres.libraries import PostgresLibraries, PostgresOptions

__all__ = ["PostgresLibraries", "PostgresOptions"]
