"""The knowledge sources of a library behind one protocol; below them text, search, storage, importers and exporters."""

# Read `source` first, the protocol that the aggregator and the server use. `library_source` implements most of it for
# sources in the library, and `chats`, `media`, `notes`, `characters` and `prompts` the rest. `kinds` is how a kind of
# item is declared, `records` has the declarations and `drafts` what callers write. `registry` loads the sources, and
# `isolated_source` keeps those of other distributions from affecting the server.
