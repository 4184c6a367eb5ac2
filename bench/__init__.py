"""Benchmarks that anyone can run. Not part of the product: nothing in it imports this package."""
