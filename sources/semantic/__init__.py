"""Search by meaning: embedding models, the embeddings endpoint and the reranker. Nothing here reads or stores data."""
# Read service.py first: what embeds a query or a passage. model.py has the vectors and their weights in a score,
# worker_process.py the process that embeds passages, so that they never delay a call.
