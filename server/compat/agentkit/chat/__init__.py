"""Chats: passed on to a model that the operator names, or answered from the library; kept as conversations."""
