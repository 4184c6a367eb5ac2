"""The SQLite databases of tldw: notes, characters and conversations; media; prompts."""
