"""How each source is searched: its index, the rows behind it, and its candidates."""
