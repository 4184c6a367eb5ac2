"""Searches all sources at once and merges their hits into one ranking."""
# Read search.py first: the life of one search. fanout.py asks the sources, ranking.py merges their hits,
# paging.py cuts a page of it, and filters.py has the defaults of a call.
