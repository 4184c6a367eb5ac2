"""Embeddings of the passages of a library, stored with pgvector. Read the docstring of `vector_tables`
first. `changed_rows` runs in every write, and `library_vectors` in the background: it embeds what is in the queue, in
one process at a time."""
