"""Embeds the passages of libraries in the background, on any engine."""
