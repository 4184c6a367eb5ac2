"""Searches as far as they are the same for every engine: match tiers, candidates, scores, fusion, snippets."""
# Read text_search.py first: one search in one target. fused_search.py adds the meaning, block_scoring.py sorts a block
# of candidates, vocabulary.py corrects spelling; engine.py has the candidates and what an engine has to provide.
