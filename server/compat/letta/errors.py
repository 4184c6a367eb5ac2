"""The error for invalid arguments of `conversation_search`."""

from config.errors import InvalidParams


class InvalidSearchArgument(InvalidParams):
    """An invalid argument. Its message is returned as a normal result, in the wording that Letta's clients know."""
