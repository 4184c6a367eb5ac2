"""The knowledge sources of a library behind one protocol; below them text, search, storage, importers and exporters.
Read `source` first."""
