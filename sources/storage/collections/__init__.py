"""The collections of a library without their searches, independent of the storage engine."""

# Read `collection` first: items are read and written through its `_read`, `_write` and `_remove`, which apply deadlines
# and quotas. `items` and `chats` add what single kinds need. `searchable` adds the ranked search; each engine combines
# these classes with its own connection and statistics (`sqlite/collections.py`, `postgres/collections.py`).
# `followed_files` is what a follow remembers about its files.
