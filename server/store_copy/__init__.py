"""Copies a deployment between SQLite and PostgreSQL, table by table, with checksums. Read first: `migration.py` (the
order of the steps, and when a target is complete), then `libraries.py` (one library, and the tables of either engine).
`florilegium migrate-store` is the only caller."""
