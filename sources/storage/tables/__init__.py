"""The tables of a library, independent of the storage engine: validation, rows, upserts, and queries on them. Read
`item_table` first."""
