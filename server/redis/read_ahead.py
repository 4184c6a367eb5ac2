"""Reads what a call needs with one script, which is one round trip."""

from auth.rate_limits import tool_rule, user_rule
from auth.redis.connection import RedisConnection
from auth.redis.rate_limits import TAKE, redis_limits
from auth.redis.scripts import ScriptSequence
from config.settings import Settings
from server.read_ahead import CallNeeds
from sessions.redis.state import GET_STATE, RedisSessionStates
from sessions.redis.store import GET_SESSION, RedisSessionStore

# The order in which a call asks: it ends with the first refusal, and what comes after it is not taken.
_NEEDS = ScriptSequence(TAKE, GET_SESSION, TAKE, GET_STATE)


class RedisReadAhead:
    def __init__(
        self,
        connection: RedisConnection,
        settings: Settings,
        sessions: RedisSessionStore,
        states: RedisSessionStates,
    ) -> None:
        make_limit = redis_limits(connection, settings)
        self._connection = connection
        self._user_limit = make_limit(user_rule(settings))
        self._tool_limit = make_limit(tool_rule(settings))
        self._sessions = sessions
        self._states = states

    def start(self, needs: CallNeeds) -> bool:
        user_id, owner = needs.principal.user_id, needs.principal.owner()
        runs = (
            self._user_limit.run_of(user_id),
            None if needs.session is None else self._sessions.run_of(needs.session, owner),
            None if needs.tool is None else self._tool_limit.run_of((user_id, needs.tool)),
            None if needs.state is None else self._states.run_of(needs.state, owner),
        )
        return self._connection.read_ahead(_NEEDS, runs)
