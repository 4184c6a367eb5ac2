"""Importers: what they read, and what becomes of it."""
