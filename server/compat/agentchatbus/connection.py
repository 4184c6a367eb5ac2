"""`bus_connect`: registers or resumes an agent, joins or creates a thread, and reads it, in one call."""

from msgspec import UNSET

from auth.context import RequestContext
from server.compat.agentchatbus import tool_schemas
from server.compat.agentchatbus.errors import DetailedBusError, InvalidAgentToken
from server.compat.agentchatbus.posting import get_thread
from server.compat.agentchatbus.schemas import CreateThreadRequest, MessagesRequest, RegisterRequest
from server.compat.agentchatbus.service import MessageBus
from server.compat.agentchatbus.threads import bus_thread, creator_id, struct_fields
from sources.items import uri_of
from sources.records import RegisteredAgent
from sources.storage.contract import Agents

# AgentChatBus's agents look for the words in capitals.
_ADMINISTRATOR = "You are the ADMINISTRATOR of this thread: you coordinate it and assign its tasks."
_PARTICIPANT = "You are a PARTICIPANT in this thread."


async def connect(
    bus: MessageBus, context: RequestContext, arguments: tool_schemas.BusConnect, text_max_bytes: int
) -> tool_schemas.BusConnection:
    if not arguments.thread_id and not (arguments.thread_name or "").strip():
        raise DetailedBusError("thread_name is required")
    async with bus.library(context) as library:
        # A missing thread is reported before an agent is registered.
        existing = await get_thread(library.chats, arguments.thread_id) if arguments.thread_id else None
        agent, token = await _register_or_resume(bus, library.agents, arguments)
        if existing is not None:
            conversation, is_created = existing, False
        else:
            new = CreateThreadRequest(
                topic=arguments.thread_name or "", creator_agent_id=agent.id, system_prompt=arguments.system_prompt
            )
            conversation, is_created = await bus.open_thread(library.chats, new, agent)
        # The agent that created a thread, if it is still registered.
        agent_id = creator_id(conversation)
        administrator = await bus.registry.find(library.agents, agent_id) if agent_id else None
        request = MessagesRequest(
            thread_id=conversation.id,
            after_seq=arguments.after_seq,
            limit=tool_schemas.MESSAGES_LIMIT,
            include_system_prompt=True,
        )
        messages, has_more = await bus.read_messages(library.chats, request, text_max_bytes)
        current_seq = await library.chats.last_message_number(conversation.id)
    context.record_read(uri_of("chats", conversation.id))
    sync_context = await bus.reply_tokens.sync_context(context.user_id, conversation.id, current_seq, agent.id)
    is_administrator = administrator is not None and administrator.id == agent.id
    role = _ADMINISTRATOR if is_administrator else _PARTICIPANT
    if administrator is not None and not is_administrator:
        role = f"{role} Its administrator, {administrator.name} (@{administrator.id}), assigns the tasks."
    connected_agent = tool_schemas.ConnectedAgent(
        agent_id=agent.id, name=agent.name, token=token, is_administrator=is_administrator, role_assignment=role
    )
    thread = bus_thread(conversation)
    connected_thread = tool_schemas.ConnectedThread(
        thread_id=thread.id,
        topic=thread.topic,
        status=thread.status,
        created=is_created,
        system_prompt=(thread.system_prompt or UNSET) if is_created else UNSET,
        administrator=(
            tool_schemas.ThreadAdministrator(agent_id=administrator.id, name=administrator.name)
            if administrator
            else UNSET
        ),
    )
    return tool_schemas.BusConnection(
        agent=connected_agent,
        thread=connected_thread,
        messages=tuple(
            tool_schemas.ThreadMessage(
                seq=one.seq, author=one.author_name, role=one.role, content=one.content, created_at=one.created_at
            )
            for one in messages
        ),
        has_more=has_more,
        **struct_fields(sync_context),
    )


async def _register_or_resume(
    bus: MessageBus, agents: Agents, arguments: tool_schemas.BusConnect
) -> tuple[RegisteredAgent, str]:
    """An agent is resumed by its id and token. With only one of them the caller would become another agent unnoticed,
    so that is an error."""
    if arguments.agent_id is None and arguments.token is None:
        request = RegisterRequest(ide=arguments.ide, model=arguments.model, display_name=arguments.display_name)
        return await bus.register_agent(agents, request)
    agent = await bus.registry.verify(agents, arguments.agent_id or "", arguments.token or "")
    if agent is None:
        raise InvalidAgentToken("Failed to resume agent: agent_id and token do not belong to a registered agent")
    return agent, arguments.token or ""
