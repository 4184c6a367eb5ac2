"""Embeddings of the passages of a library, stored with pgvector. Read the docstring of `vector_tables`
first. `library_vectors` runs in the background: it embeds what is in the queue, in one process at a time."""
