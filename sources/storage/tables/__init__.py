"""The tables of a library, independent of the storage engine: validation, rows, upserts, and queries on them.

The SQL is what SQLite and PostgreSQL both understand, after the PostgreSQL engine has translated a few spellings
(`sources.storage.postgres.connection`).
"""
