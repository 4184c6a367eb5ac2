"""Embeddings of the passages of a library, stored in its schema with pgvector."""
