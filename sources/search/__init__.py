"""Searching: arguments, term matching, scoring and snippets."""
# Read scoring.py first: the score by words, and what raises it. arguments.py turns a call into a query of a source;
# term_matching.py defines what a term matches, for scores and for the highlights of snippets.py.
