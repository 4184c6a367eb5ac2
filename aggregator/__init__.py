"""Searches all sources at once and merges their hits into one ranking."""
# Read search.py first: the life of one search. contract.py has its arguments, defaults and response. fanout.py asks the
# sources, and ranking.py merges their hits and cuts a page of them.
