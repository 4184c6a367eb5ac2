"""Florilegium as deployed: same factory, credentials verified, rates counted, each request logged as JSON.

Two things differ from the defaults: the rate limits are too high to be reached, and there is an additional echo tool,
so that the SDK's server can do the same work.
"""

import secrets
import sys
import time

from msgspec import Struct

from auth.context import READ, WRITE
from auth.tokens import mint_token
from bench.servers import ECHO_DESCRIPTION, ECHO_TITLE, Account, Announcement, announce
from config.logging import configure
from config.settings import Settings, check
from server.app import build_app
from server.lifespan import open_runtime
from server.metrics import Metrics
from server.protocol.call import Call
from server.protocol.catalog import Tool
from server.runtime import Runtime
from server.serving import run, serve
from tests.build_settings import build_settings

# With 32 connections: four WebSockets per user, well below the default of stream_max_per_user.
USERS = 8
TOKEN_LIFETIME_S = 3600.0
UNREACHABLE_RATE_PER_MINUTE = 1e9
UNREACHABLE_BURST = 1_000_000_000


class Text(Struct, frozen=True, forbid_unknown_fields=True):
    text: str


async def echo(call: Call, arguments: Text) -> Text:
    return arguments


ECHO = Tool(name="echo", title=ECHO_TITLE, description=ECHO_DESCRIPTION, input=Text, output=Text, handler=echo)


def settings_for(data_dir: str, session_url: str = "") -> Settings:
    settings = build_settings(
        data_dir=data_dir,
        session_url=session_url,
        semantic_model="off",
        port=0,
        jwt_secret=secrets.token_urlsafe(32),
        rate_user_per_minute=UNREACHABLE_RATE_PER_MINUTE,
        rate_user_burst=UNREACHABLE_BURST,
        rate_tool_per_minute=UNREACHABLE_RATE_PER_MINUTE,
        rate_tool_burst=UNREACHABLE_BURST,
    )
    check(settings)
    return settings


async def create_account(runtime: Runtime, name: str, scopes: tuple[str, ...] = (READ,)) -> Account:
    user = await runtime.registry.add_user(name)
    _, key = await runtime.registry.create_key(user.id, "bench", scopes)
    now = time.time()
    token = mint_token(runtime.settings, name, scopes, lifetime_s=TOKEN_LIFETIME_S, now=now, client_id="bench")
    return Account(token, key)


async def main(data_dir: str, session_url: str = "") -> None:
    settings = settings_for(data_dir, session_url)
    configure(settings.log_level, settings.log_format)
    metrics = Metrics()
    async with open_runtime(settings, observer=metrics) as runtime:
        runtime.dispatcher.catalog.add_tool(ECHO)
        accounts = tuple([await create_account(runtime, f"user{number}", (READ, WRITE)) for number in range(USERS)])
        app = build_app(runtime, metrics)
        await serve(app, settings, runtime.open_streams, lambda url: announce(Announcement(url, accounts)))


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
