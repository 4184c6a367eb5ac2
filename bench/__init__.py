"""Benchmarks. They are not part of the product: nothing in it imports this package."""
