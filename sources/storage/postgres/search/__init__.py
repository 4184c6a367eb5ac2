"""Searches in PostgreSQL: tsqueries, candidates, counts, substrings and vectors."""
