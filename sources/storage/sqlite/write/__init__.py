"""Writes: validation, rows, upserts and idempotency keys."""
