"""Connections, database files and the pool of open libraries."""
# Read connection.py first: one connection, its thread and its jobs. database.py is one file, and
# pool.py the libraries that are open; what is in them is in ../collections.py.
