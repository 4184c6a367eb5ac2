"""Full-text indexes as tsvectors, and their maintenance."""
