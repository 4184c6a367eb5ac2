"""Exports a library as files that people can read and that can be imported again."""
