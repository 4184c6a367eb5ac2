"""Parsers of documents. They run in a process of their own, with limits: what they read was made by anybody."""
