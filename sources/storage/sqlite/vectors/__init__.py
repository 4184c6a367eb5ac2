"""Embeddings of the passages of a library, stored in the same files as the items they were made from."""
