"""WebSocket tickets in Redis: issued by one process, redeemed once, by any. Nothing is accepted without the server."""

import msgspec

from auth.principal import Principal
from auth.redis.connection import RedisConnection
from auth.redis.scripts import RedisScript
from auth.tickets import new_ticket, ticket_hash, ticket_rejected, too_many_tickets
from config.settings import Settings

# The sorted sets count the tickets of a user and of all users, by the time at which they expire.
_ISSUE = RedisScript(
    """
for index = 2, 3 do
  redis.call('ZREMRANGEBYSCORE', KEYS[index], '-inf', now)
  if redis.call('ZCARD', KEYS[index]) >= tonumber(ARGV[index + 1]) then return 0 end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
for index = 2, 3 do
  redis.call('ZADD', KEYS[index], now + ARGV[2] * 1000, KEYS[1])
  redis.call('PEXPIRE', KEYS[index], ARGV[2])
end
return 1
""",
    uses_now=True,
)
_REDEEM = RedisScript("""
local ticket = redis.call('GETDEL', KEYS[1])
if ticket then redis.call('ZREM', KEYS[2], KEYS[1]) end
return ticket
""")
_FORGET = RedisScript("return redis.call('ZREM', KEYS[1], ARGV[1])")
_PRINCIPAL = msgspec.msgpack.Decoder(Principal)


class RedisTickets:
    def __init__(self, connection: RedisConnection, settings: Settings) -> None:
        self._connection = connection
        self._ttl_s = settings.ws_ticket_ttl_s
        self._max = settings.session_max
        self._max_per_user = settings.stream_max_per_user

    async def issue(self, principal: Principal) -> tuple[str, float]:
        ticket = new_ticket()
        keys = [self._key(ticket), self._user_key(principal), self._connection.key("tickets")]
        is_issued = await self._connection.run(
            _ISSUE,
            keys,
            msgspec.msgpack.encode(principal),
            round(self._ttl_s * 1000),
            self._max_per_user,
            self._max,
        )
        if not is_issued:
            raise too_many_tickets(self._ttl_s)
        return ticket, self._ttl_s

    async def redeem(self, ticket: str) -> Principal:
        key = self._key(ticket)
        content = await self._connection.run(_REDEEM, [key, self._connection.key("tickets")])
        if content is None:
            raise ticket_rejected()
        principal = _PRINCIPAL.decode(content)
        self._connection.post(_FORGET, [self._user_key(principal)], key)
        return principal

    def _key(self, ticket: str) -> str:
        return self._connection.key("ticket", ticket_hash(ticket).hex())

    def _user_key(self, principal: Principal) -> str:
        return self._connection.key("tickets", principal.user_id)
