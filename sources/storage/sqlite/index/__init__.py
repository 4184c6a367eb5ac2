"""Full-text indexes and their statistics."""
