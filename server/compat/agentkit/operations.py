"""What the operations of the conversations API have in common."""

from typing import Any

from server.compat.agentkit.errors import AGENTKIT_ERROR_FORMAT
from server.rest.errors import Unprocessable
from server.rest.operation import Operation

LISTING_TOOLS = ("chats_search", "knowledge_search")
READING_TOOLS = ("chats_get", "knowledge_get")
SEARCHING_TOOLS = ("chats_search", "conversation_search", "knowledge_search")
# No MCP tool writes conversations, so a key that is restricted to a profile may not.
WRITING_TOOLS = ("conversations_write",)


def agentkit_operation(**fields: Any) -> Operation:
    """Creates an operation on conversations, with AgentKit's error format."""
    return Operation(error_format=AGENTKIT_ERROR_FORMAT, input_error=Unprocessable, source="chats", **fields)
