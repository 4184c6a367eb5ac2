"""Searches: match expressions, tiers, ranking and exact matches."""
