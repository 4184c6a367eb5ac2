"""The SQLite databases of tldw: notes, characters and conversations; media; prompts. `databases.py` recognizes a
database and says which of its tables are followed; `media.py` also has what the rows of all tables have in common. tldw
marks rows as deleted, and followed databases withdraw the items of such rows."""
