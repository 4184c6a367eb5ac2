"""Several servers that share their state in Redis."""
