"""Searches all sources at once and merges their hits into one ranking."""
