"""The tables of a library, independent of the storage engine: validation, rows, upserts, and queries on them.

The SQL is what SQLite and PostgreSQL both understand, after the PostgreSQL engine has translated a few spellings
(`sources.storage.postgres.connection`).
"""

# Read `item_table` first: one class writes and reads the rows of every kind. `kind_tables` derives the tables of most
# kinds from their declarations; conversations with messages (`conversation_tables`) and media (`media_table`) have more
# than one table each, and classes of their own. `upsert` decides what an import changes, and `thread_upsert` does so
# for conversations. `validation` is the only way from a value of a draft to a value of a row, and `sql` has what all
# of them share.
