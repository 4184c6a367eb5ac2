"""Letta's tool `conversation_search`: searches the caller's conversation history by substring, roles and dates."""
