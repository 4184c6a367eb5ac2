"""The agents of each user's bus, stored in the user's library, so that they are still registered after a restart.

An agent's token identifies an agent among those of one user. It does not identify the user and grants nothing that the
caller's own credential does not.
"""

import hmac
import secrets
import time
from collections.abc import Callable

from config.settings import Settings
from config.times import format_timestamp
from server.compat.agentchatbus.errors import InvalidAgentToken
from server.compat.agentchatbus.reply_tokens import TOKEN_BYTES, token_hash
from sources.records import RegisteredAgent
from sources.storage.contract import Agents

# The time of an agent's last use is stored with this precision, to save writes.
_USE_PRECISION_S = 60


class AgentRegistry:
    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._max_per_user = settings.bus_agent_max_per_user
        self._ttl_s = settings.bus_agent_ttl_s
        self._clock = clock

    async def register(self, agents: Agents, name: str) -> tuple[RegisteredAgent, str]:
        """Returns a new agent and its token. Only the token's hash is stored."""
        token = secrets.token_urlsafe(TOKEN_BYTES)
        agent = await agents.register(
            name,
            token_hash(token),
            time=self._time_before(0),
            idle_since=self._time_before(self._ttl_s),
            limit=self._max_per_user,
        )
        return agent, token

    async def find(self, agents: Agents, agent_id: str) -> RegisteredAgent | None:
        agent = await agents.find(agent_id)
        return agent if agent is not None and agent.used_at >= self._time_before(self._ttl_s) else None

    async def verify(self, agents: Agents, agent_id: str, token: str) -> RegisteredAgent | None:
        """Returns the agent if the token is correct, and counts that as use."""
        agent = await self.find(agents, agent_id)
        if agent is None or not hmac.compare_digest(agent.token_hash, token_hash(token)):
            return None
        await self.set_used(agents, agent)
        return agent

    async def require(self, agents: Agents, agent_id: str, token: str | None, action: str) -> RegisteredAgent:
        """Raises InvalidAgentToken unless the token is correct. `action` is what the agent needs it for."""
        if not token:
            raise InvalidAgentToken(f"X-Agent-Token header required to {action} as a registered agent")
        agent = await self.verify(agents, agent_id, token)
        if agent is None:
            raise InvalidAgentToken("Invalid agent token")
        return agent

    async def set_used(self, agents: Agents, agent: RegisteredAgent) -> None:
        if agent.used_at < self._time_before(_USE_PRECISION_S):
            await agents.set_used(agent.id, self._time_before(0))

    def _time_before(self, seconds: float) -> str:
        return format_timestamp(max(0, self._clock() - seconds))
