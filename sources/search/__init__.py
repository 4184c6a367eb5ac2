"""Searching: arguments, term matching, scoring and snippets."""
