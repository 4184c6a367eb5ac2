"""Tests of `server.following`."""
