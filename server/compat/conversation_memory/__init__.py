"""Layered memory: what was learned in sessions, found in short rows, read in full, and traced to the conversation it
comes from. Formats and grouping are functions of values; `recall` and `transcript` ask the caller's own library.
"""
