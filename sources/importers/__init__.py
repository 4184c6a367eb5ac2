"""Imports files and exports of other programs into a library. Read `importer` first."""
