"""Searches in PostgreSQL: tsqueries, candidates, counts, substrings and vectors. Read `tsquery` first."""
