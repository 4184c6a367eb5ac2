"""Credentials in, principals out: who is calling, what they may do, and where their databases are."""
