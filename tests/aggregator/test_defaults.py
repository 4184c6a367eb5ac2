"""A request's config: which keys it may have, which are rejected, and how session defaults override it."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aggregator.contract import read_config, search_defaults, session_context
from auth.context import SCOPES, ClientId, Principal, RequestContext, SessionId, build_context
from config.errors import InvalidParams, SessionNotFound
from config.paths import DataRoot, new_user_id
from sessions.state import InProcessSessionStates, SessionStateLimits, handle_for
from tests.cases import each_case

GOOD = {
    "snippet_length": 120,
    "max_tokens": 900,
    "sibling_window": 1,
    "order_by": "recent",
    "chars_per_token": 3.5,
    "dedupe": "off",
    "hit_fields": "all",
    "result_text": "json",
    "shape": "compact",
    "seen_max": 50,
    "time_zone": "Europe/Berlin",
}
# Only used to build paths; nothing is read or written.
NOWHERE = DataRoot(Path("nowhere"))
KNOWN = (
    "snippet_length, max_tokens, sibling_window, chars_per_token, order_by, time_zone, strict, dedupe, hit_fields, "
    "result_text, shape, seen_max"
)


def session_states() -> InProcessSessionStates:
    return InProcessSessionStates(
        SessionStateLimits(ttl_s=60, seen_max=10, queries_max=10, total_max=1_000, user_max=500)
    )


def context(name: str, session: str | None = None, **config: Any) -> RequestContext:
    principal = Principal(new_user_id(), name, ClientId("test"), frozenset(SCOPES), "local", "test")
    return build_context(principal, NOWHERE, "request", SessionId(session) if session else None, config)


def test_every_default_can_be_set() -> None:
    assert read_config(GOOD) == GOOD


def test_null_values_are_dropped() -> None:
    assert read_config(dict.fromkeys(GOOD)) == {}


@each_case(
    ("config", "read"),
    [
        ({"compactShape": True}, {"shape": "compact"}),
        ({"compactShape": False}, {"shape": "canonical"}),
        ({"maxSessionUris": 999_999}, {"seen_max": 999_999}),
        ({"aliasMode": True}, {}),
        ({"aliasMode": None, "compactShape": None, "maxSessionUris": None}, {}),
    ],
)
def test_keys_of_tldw_become_ours(config: dict[str, Any], read: dict[str, Any]) -> None:
    assert read_config(config) == read


@each_case(
    ("config", "message"),
    [
        ({"aliasMode": False}, "config.aliasMode: expected true, got false: search and fetch are always listed"),
        ({"aliasMode": "yes"}, "config.aliasMode: Expected `bool | null`, got `str`"),
        ({"compactShape": 1}, "config.compactShape: Expected `bool | null`, got `int`"),
        ({"maxSessionUris": True}, "config.maxSessionUris: Expected `int | null`, got `bool`"),
        ({"compactShape": True, "shape": "canonical"}, "config: expected one of compactShape and shape, got both"),
    ],
)
def test_keys_of_tldw_that_cannot_be_served_are_refused_with_what_to_use_instead(
    config: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidParams) as raised:
        read_config(config)

    assert raised.value.message.startswith(message)


@each_case(
    "key",
    [
        *("token", "access_token", "api_key", "apiKey", "API-KEY", "password", "passwd", "secret", "authorization"),
        *("bearer", "user", "user_id", "userId", "tenant", "db_path", "db_paths", "data_dir_path", "dsn", "cookie"),
    ],
)
def test_keys_of_credentials_users_and_paths_are_rejected_without_their_value(key: str) -> None:
    with pytest.raises(InvalidParams) as raised:
        read_config({**GOOD, key: "hunter2"})

    assert raised.value.message == (
        f"config: expected any of {KNOWN}, got {key!r}; a config cannot carry credentials, users or paths"
    )
    assert "hunter2" not in raised.value.message


@each_case("key", ["limit", "snippetLength", "", "tokens", "SNIPPET_LENGTH", "deadline_ms", "x" * 500])
def test_unknown_key_is_rejected_with_the_valid_ones(key: str) -> None:
    with pytest.raises(InvalidParams, match=rf"^config: expected any of {KNOWN}, got '{key[:60]}'$"):
        read_config({key: 1})


@each_case(
    ("key", "value", "message"),
    [
        ("max_tokens", "900", "config.max_tokens: Expected `int | null`, got `str`"),
        ("max_tokens", True, "config.max_tokens: Expected `int | null`, got `bool`"),
        ("snippet_length", 1.5, "config.snippet_length: Expected `int | null`, got `float`"),
        ("snippet_length", [], "config.snippet_length: Expected `int | null`, got `array`"),
        ("order_by", "newest", "config.order_by: Invalid enum value 'newest'"),
        (
            "time_zone",
            "Mars/Olympus",
            "config.time_zone: expected an IANA time zone such as Europe/Berlin, got 'Mars/Olympus'",
        ),
        (
            "time_zone",
            "../../etc/passwd",
            "config.time_zone: expected an IANA time zone such as Europe/Berlin, got '../../etc/passwd'",
        ),
        ("dedupe", {}, "config.dedupe: Expected `str | null`, got `object`"),
        ("chars_per_token", "4", "config.chars_per_token: Expected `float | null`, got `str`"),
    ],
)
def test_value_of_the_wrong_type_is_rejected(key: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidParams) as raised:
        read_config({key: value})

    assert raised.value.message == message


@each_case("value", [[], "text", 1, None, True])
def test_config_that_is_not_an_object_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidParams, match=r"^config: expected an object with any of"):
        read_config(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(GOOD)) | st.text(max_size=12), JSON, max_size=6))
def test_any_config_is_rejected_with_a_message_or_usable(config: dict[str, Any]) -> None:
    message, values = "", dict[str, Any]()
    try:
        values = dict(read_config(config))
    except InvalidParams as error:
        message = error.message

    assert message.startswith("config") or set(values) <= set(GOOD)
    for key, value in values.items():
        assert getattr(search_defaults(context("ada", **values)), key) == value


# -- sessions ---------------------------------------------------------------------------------------------------


async def test_without_session_state_the_context_is_unchanged_and_no_state_is_created() -> None:
    store, ada = session_states(), context("ada", "s", max_tokens=1)

    alone = replace(ada, session=None)

    assert await session_context(store, ada) is ada
    assert await session_context(store, alone) is alone
    assert store.size == 0


async def test_session_defaults_of_another_user_are_not_found() -> None:
    store, ada, ben = session_states(), context("ada", "s"), context("ben", "s")
    handle = (await store.get_or_create(handle_for(SessionId("s")), ada.principal.owner())).handle
    await store.set_defaults(handle, ada.principal.owner(), {"max_tokens": 2})

    assert dict((await session_context(store, ben)).config) == {}
    with pytest.raises(SessionNotFound):
        await session_context(store, ben, handle)
