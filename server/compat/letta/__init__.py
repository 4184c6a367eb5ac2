"""Letta's `conversation_search`."""
