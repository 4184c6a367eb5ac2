"""The official Python package of OpenAI as a client, with no more than another address and key."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from openai import APIError, AsyncOpenAI, AuthenticationError, InternalServerError

from tests.live import LiveServer, live, make_settings
from tests.server.http_client import fetch


@pytest.fixture
async def client(server: LiveServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=await server.token("ada"), max_retries=0) as opened:
        yield opened


async def kept(server: LiveServer) -> list[tuple[str, str]]:
    bearer = await server.bearer("ada")
    [one] = (await fetch(server.url, "GET", "/conversations", bearer)).json()["conversations"]
    messages = (await fetch(server.url, "GET", f"/conversations/{one['id']}", bearer)).json()["messages"]
    return [(message["role"], message["content"]) for message in messages]


async def test_a_conversation_of_two_turns_is_answered_and_kept_once(server: LiveServer, client: AsyncOpenAI) -> None:
    first = await client.chat.completions.create(model="any", messages=[{"role": "user", "content": "hi"}])
    said = first.choices[0].message.content or ""
    second = await client.chat.completions.create(
        model="any",
        messages=[
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": said},
            {"role": "user", "content": "more"},
        ],
    )

    assert first.model == "plain-1"
    assert await kept(server) == [
        ("user", "hi"),
        ("assistant", said),
        ("user", "more"),
        ("assistant", second.choices[0].message.content),
    ]


async def test_a_stream_is_read_to_its_end_and_found_at_once(server: LiveServer, client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    said = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert said == "Sodium is cheaper."
    assert await kept(server) == [("user", "hi"), ("assistant", said)]


async def test_models_are_listed(client: AsyncOpenAI) -> None:
    assert [model.id async for model in await client.models.list()] == ["plain-1"]


async def test_refusals_are_the_packages_own_errors(server: LiveServer, client: AsyncOpenAI) -> None:
    with pytest.raises(InternalServerError, match="no: 500"):
        await client.chat.completions.create(model="500", messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(AuthenticationError):
        await client.with_options(api_key="flo_wrong").models.list()


async def test_a_stream_that_breaks_off_is_an_error_and_no_end(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="dying", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    with pytest.raises(APIError, match="the upstream broke off"):
        _ = [chunk async for chunk in stream]


async def test_without_an_upstream_the_package_is_answered_too(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=await server.token("ada")) as client:
            whole = await client.chat.completions.create(model="any", messages=[{"role": "user", "content": "hi"}])
            stream = await client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            said = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        assert whole.model == "extractive"
        assert said == whole.choices[0].message.content
        assert await kept(server) == [("user", "hi"), ("assistant", said)]
