"""Searches as far as they are the same for every engine: match tiers, candidates, scores, fusion, snippets."""
