"""Conversations in the forms that other systems' clients know: how they are shown, written down and read back."""
