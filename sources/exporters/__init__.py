"""Exports a library as files that people can read and that can be imported again. `export.py` writes the folder;
`lines.py` has its JSON lines, which `importers/formats/own_export.py` reads again without loss. The Markdown pages are
for people and are not read again."""
