"""Searches: match expressions, tiers, ranking and exact matches."""
# Read fts5_engine.py first: MATCH expressions and the statements of a search. targets.py says what each
# source searches; exact.py and substring.py are the searches that take a text literally.
