"""Which messages belong to the searched history."""

from server.compat.letta.tools import is_history
from tests.cases import each_case
from tests.server.compat.letta.message_hits import message_hit

TOOLS = {"conversation_search", "knowledge_search", "search", "msg_search"}


@each_case(
    "tool",
    [
        "conversation_search",
        "mcp__florilegium__knowledge_search",
        "florilegium:search",
        "mcp__florilegium__read",
        "knowledge.search",
        "kb.msg_search",
    ],
)
def test_output_of_own_tools_is_not_history(tool: str) -> None:
    assert not is_history(message_hit("asyncio", role="tool", tool=tool).message, TOOLS)


@each_case("tool", ["search", "mcp__web__search", "python", None, "search.web"])
def test_output_of_other_tools_is_history(tool: str | None) -> None:
    assert is_history(message_hit("asyncio", role="tool", tool=tool).message, TOOLS)


def test_assistant_message_that_used_own_tools_is_history() -> None:
    assert is_history(message_hit("asyncio", role="assistant", tool="knowledge_search").message, TOOLS)


def test_alternate_branch_is_not_history() -> None:
    assert not is_history(message_hit("asyncio", is_canonical=False).message, TOOLS)
