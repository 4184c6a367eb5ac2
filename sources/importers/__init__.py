"""Imports files and exports of other programs into a library. `formats/` has one module or package per format."""
