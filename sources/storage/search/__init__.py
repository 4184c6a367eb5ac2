"""Searches as far as they are the same for every engine: match tiers, candidates, scores, fusion, snippets."""
# Read text_search.py first: one search in one target, by words and by meaning. vocabulary.py corrects spelling.
# engine.py has the candidates and what an engine has to provide; sources/search/scoring.py scores them.
