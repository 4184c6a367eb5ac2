"""Search by meaning: embedding models, the embeddings endpoint and the reranker. Nothing here reads or stores data."""
