"""The data export of Claude.ai: conversations and projects."""
