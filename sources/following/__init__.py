"""Keeps a library current with folders, files and databases that other programs change. Read `sync` first."""
