"""Connections, database files and the pool of open libraries."""
# Read connection.py first: one connection, its thread and its jobs. database.py is one file, library.py the files of
# a user, and pool.py the libraries that are open.
