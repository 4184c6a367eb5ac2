"""OpenAI's official Python package as a client, with only another base URL and key."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.live import LiveServer, live, make_settings
from tests.server.http_client import fetch

if TYPE_CHECKING:
    from openai import AsyncOpenAI


@pytest.fixture
async def client(server: LiveServer) -> "AsyncIterator[AsyncOpenAI]":
    # Importing it takes a second, which processes without these tests should not need.
    from openai import AsyncOpenAI  # noqa: PLC0415

    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=await server.token("ada"), max_retries=0) as client:
        yield client


async def stored_messages(server: LiveServer) -> list[tuple[str, str]]:
    bearer = await server.bearer("ada")
    [conversation] = (await fetch(server.url, "GET", "/conversations", bearer)).json()["conversations"]
    messages = (await fetch(server.url, "GET", f"/conversations/{conversation['id']}", bearer)).json()["messages"]
    return [(message["role"], message["content"]) for message in messages]


async def test_two_turn_conversation_is_answered_and_stored_once(server: LiveServer, client: "AsyncOpenAI") -> None:
    first = await client.chat.completions.create(model="any", messages=[{"role": "user", "content": "hi"}])
    text = first.choices[0].message.content or ""
    second = await client.chat.completions.create(
        model="any",
        messages=[
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": text},
            {"role": "user", "content": "more"},
        ],
    )

    assert first.model == "plain-1"
    assert await stored_messages(server) == [
        ("user", "hi"),
        ("assistant", text),
        ("user", "more"),
        ("assistant", second.choices[0].message.content),
    ]


async def test_stream_is_read_to_its_end_and_stored(server: LiveServer, client: "AsyncOpenAI") -> None:
    stream = await client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert text == "Sodium is cheaper."
    assert await stored_messages(server) == [("user", "hi"), ("assistant", text)]


async def test_models_can_be_listed(client: "AsyncOpenAI") -> None:
    assert [model.id async for model in await client.models.list()] == ["plain-1"]


async def test_errors_raise_the_packages_own_exceptions(server: LiveServer, client: "AsyncOpenAI") -> None:
    from openai import AuthenticationError, InternalServerError  # noqa: PLC0415 - as above

    with pytest.raises(InternalServerError, match="no: 500"):
        await client.chat.completions.create(model="500", messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(AuthenticationError):
        await client.with_options(api_key="flo_wrong").models.list()


async def test_interrupted_stream_raises_an_error(client: "AsyncOpenAI") -> None:
    from openai import APIError  # noqa: PLC0415 - as above

    stream = await client.chat.completions.create(
        model="crashing", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    with pytest.raises(APIError, match=r"the upstream (broke off|sent an incomplete)"):
        _ = [chunk async for chunk in stream]


async def test_completions_work_without_an_upstream(tmp_path: Path) -> None:
    from openai import AsyncOpenAI  # noqa: PLC0415 - as above

    async with live(make_settings(tmp_path)) as server:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=await server.token("ada")) as client:
            whole = await client.chat.completions.create(model="any", messages=[{"role": "user", "content": "hi"}])
            stream = await client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        assert whole.model == "extractive"
        assert text == whole.choices[0].message.content
        assert await stored_messages(server) == [("user", "hi"), ("assistant", text)]
