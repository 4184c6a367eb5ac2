"""Searches in PostgreSQL: tsqueries, candidates, counts, substrings and vectors."""

# The search itself is that of `sources.storage.search`, for both engines. Here is what it asks of an engine: `tsquery`
# compiles expressions, `entry_sql` selects candidates, `statistics` counts terms, `meaning` compares vectors, and
# `resolved_filters` resolves the conditions that only Python can check. `exact` and `substring` are searches of their
# own, in messages only.
