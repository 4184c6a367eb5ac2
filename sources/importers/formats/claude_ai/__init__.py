"""The data export of Claude.ai: conversations and projects."""

# `export.py` also splits a message into the blocks that become messages of their own.
