"""A caller's config: what it may hold, what is refused, and where a session's defaults stand before it."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aggregator.defaults import habits_of, read_config, session_context
from auth.context import RequestContext, SessionId, build_context
from auth.principal import SCOPES, ClientId, Principal
from config.errors import InvalidParams, SessionNotFound
from config.paths import DataRoot, new_user_id
from sessions.state import InProcessSessionStates, SessionStateLimits, handle_for

GOOD = {
    "snippet_length": 120,
    "max_tokens": 900,
    "sibling_window": 1,
    "order_by": "recent",
    "chars_per_token": 3.5,
    "dedupe": "off",
}
# Only joined with names, never touched.
NOWHERE = DataRoot(Path("nowhere"))
KNOWN = "snippet_length, max_tokens, sibling_window, chars_per_token, order_by, dedupe"


def session_states() -> InProcessSessionStates:
    return InProcessSessionStates(
        SessionStateLimits(ttl_s=60, seen_max=10, queries_max=10, total_max=1_000, user_max=500)
    )


def context(name: str, session: str | None = None, **config: Any) -> RequestContext:
    principal = Principal(new_user_id(), name, ClientId("test"), frozenset(SCOPES), "local", "test")
    return build_context(principal, NOWHERE, "request", SessionId(session) if session else None, config)


def test_every_habit_can_be_given() -> None:
    assert read_config(GOOD) == GOOD


def test_null_is_as_good_as_nothing() -> None:
    assert read_config(dict.fromkeys(GOOD)) == {}


@pytest.mark.parametrize(
    "key",
    [
        *("token", "access_token", "api_key", "apiKey", "API-KEY", "password", "passwd", "secret", "authorization"),
        *("bearer", "user", "user_id", "userId", "tenant", "db_path", "db_paths", "data_dir_path", "dsn", "cookie"),
    ],
)
def test_what_looks_like_a_credential_a_user_or_a_path_is_refused_by_name_and_never_repeated(key: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read_config({**GOOD, key: "hunter2"})

    assert caught.value.message.startswith(f"config: {key!r} is never read from a config")
    assert caught.value.message.endswith(f"expected any of {KNOWN}")
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("key", ["limit", "snippetLength", "", "tokens", "SNIPPET_LENGTH", "deadline_ms", "x" * 500])
def test_an_unknown_key_is_refused_with_those_there_are(key: str) -> None:
    with pytest.raises(InvalidParams, match=rf"^config: unknown key '{key[:60]}'; expected any of {KNOWN}$"):
        read_config({key: 1})


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("max_tokens", "900", "config.max_tokens: Expected `int | null`, got `str`"),
        ("max_tokens", True, "config.max_tokens: Expected `int | null`, got `bool`"),
        ("snippet_length", 1.5, "config.snippet_length: Expected `int | null`, got `float`"),
        ("snippet_length", [], "config.snippet_length: Expected `int | null`, got `array`"),
        ("order_by", "newest", "config.order_by: Invalid enum value 'newest'"),
        ("dedupe", {}, "config.dedupe: Expected `str | null`, got `object`"),
        ("chars_per_token", "4", "config.chars_per_token: Expected `float | null`, got `str`"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_what_was_expected(key: str, value: Any, sentence: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read_config({key: value})

    assert caught.value.message == sentence


@pytest.mark.parametrize("given_config", [[], "text", 1, None, True])
def test_a_config_that_is_no_object_is_refused(given_config: Any) -> None:
    with pytest.raises(InvalidParams, match="expected an object with any of"):
        read_config(given_config)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(GOOD)) | st.text(max_size=12), JSON, max_size=6))
def test_a_config_is_refused_in_a_sentence_or_can_be_used(config: dict[str, Any]) -> None:
    refusal, read = "", dict[str, Any]()
    try:
        read = dict(read_config(config))
    except InvalidParams as error:
        refusal = error.message

    assert refusal.startswith("config") or set(read) <= set(GOOD)
    for key, value in read.items():
        assert getattr(habits_of(context("ada", **read)), key) == value


# -- sessions ---------------------------------------------------------------------------------------------------


async def test_a_call_of_a_session_goes_by_its_defaults_before_the_requests_own() -> None:
    store, ada = session_states(), context("ada", "s", max_tokens=1, order_by="recent")
    owner = ada.principal.owner()
    handle = (await store.get_or_create(handle_for(SessionId("s")), owner)).handle
    await store.set_defaults(handle, owner, {"max_tokens": 2})

    by_connection = await session_context(store, ada)
    by_name = await session_context(store, replace(ada, session=None), handle)

    assert dict(by_connection.config) == dict(by_name.config) == {"max_tokens": 2, "order_by": "recent"}


async def test_a_session_that_remembers_nothing_changes_nothing_and_makes_no_memory() -> None:
    store, ada = session_states(), context("ada", "s", max_tokens=1)

    alone = replace(ada, session=None)

    assert await session_context(store, ada) is ada
    assert await session_context(store, alone) is alone
    assert store.size == 0


async def test_the_defaults_of_one_user_are_not_found_by_another() -> None:
    store, ada, ben = session_states(), context("ada", "s"), context("ben", "s")
    handle = (await store.get_or_create(handle_for(SessionId("s")), ada.principal.owner())).handle
    await store.set_defaults(handle, ada.principal.owner(), {"max_tokens": 2})

    assert dict((await session_context(store, ben)).config) == {}
    with pytest.raises(SessionNotFound):
        await session_context(store, ben, handle)
