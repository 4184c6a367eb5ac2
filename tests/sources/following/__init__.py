"""Tests of `sources.following`."""
