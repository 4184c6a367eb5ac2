"""An OpenAI-compatible API server for tests: `python -m tests.server.compat.agentkit.chat.upstream_program PORT`.

The model that is asked for decides how it behaves. It remembers what it was sent, and which streams were broken off.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

SEEN: list[dict[str, Any]] = []
BROKEN_OFF = asyncio.Event()
RELEASED = asyncio.Event()
WORDS = ("Sodium ", "is ", "cheaper.")
# Spaces, order, escapes and fields that no library would write like this: they must arrive as they are.
ODD = (
    b'{ "id":"x-1", "object" : "chat.completion","vendor":{"caf\\u00e9":[1, 2.50]},\n "model":"odd-1", "choices":'
    b'[{"finish_reason":"stop","index":0,"message":{"content":"Sodium is cheaper.","role":"assistant"}}],'
    b' "usage":{"total_tokens":7} }\n'
)


class Hanging(StreamingResponse):
    """A stream that says two words and then nothing until its client leaves."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            BROKEN_OFF.set()


def event(delta: dict[str, Any], finish_reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    chunk = {"id": "s-1", "object": "chat.completion.chunk", "created": 1, "model": "streaming-1", "choices": [choice]}
    return b"data: " + msgspec.json.encode({**chunk, **more}) + b"\n\n"


async def streaming() -> AsyncIterator[bytes]:
    yield b": a comment\r\n\r\n"
    yield event({"role": "assistant", "content": ""}, system_fingerprint="fp")
    for word in WORDS:
        yield event({"content": word})
        await asyncio.sleep(0)
    yield event({}, "stop")
    yield b"data: [DONE]\n\n"


async def hanging() -> AsyncIterator[bytes]:
    yield event({"role": "assistant", "content": WORDS[0]})
    yield event({"content": WORDS[1]})
    await asyncio.Event().wait()


async def dying() -> AsyncIterator[bytes]:
    yield event({"role": "assistant", "content": WORDS[0]})
    await asyncio.sleep(0.05)
    raise RuntimeError("the upstream dies")


async def complete(request: Request) -> Response:
    body = await request.body()
    asked = msgspec.json.decode(body)
    SEEN.append({"headers": dict(request.headers.items()), "body": body.decode(), "asked": asked})
    match asked.get("model"):
        case "odd":
            return Response(ODD, media_type="application/json; charset=utf-8", headers={"x-ratelimit-left": "9"})
        case "hanging":
            return Hanging(hanging(), media_type="text/event-stream")
        case "dying":
            return StreamingResponse(dying(), media_type="text/event-stream")
        case "slow":
            await asyncio.wait_for(RELEASED.wait(), 15)
            return Response(ODD, media_type="application/json")
        case "silent":
            await asyncio.sleep(600)
            return Response()
        case "malformed":
            return Response(b"<html>", media_type="text/html")
        case "huge":
            return Response(b"x" * 100_000, media_type="application/json")
        case "redirect":
            return Response(status_code=307, headers={"location": "http://127.0.0.1:1/"})
        case str(model) if model.isdigit():
            problem = {"error": {"message": f"no: {model}", "type": "t", "param": None, "code": "c"}}
            return JSONResponse(problem, int(model), {"retry-after": "17"})
        case _:
            return (
                StreamingResponse(streaming(), media_type="text/event-stream") if asked.get("stream") else _said(asked)
            )


def _said(asked: dict[str, Any]) -> Response:
    """Says how many messages it was sent, so that each answer is another."""
    message = {"role": "assistant", "content": f"Answer {len(SEEN)} to {len(asked['messages'])} messages."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return JSONResponse(
        {"id": "n-1", "object": "chat.completion", "created": 1, "model": "plain-1", "choices": [choice]}
    )


async def models(request: Request) -> Response:
    SEEN.append({"headers": dict(request.headers.items()), "body": "", "asked": None})
    return JSONResponse({"object": "list", "data": [{"id": "plain-1", "object": "model", "vendor": 7}]})


async def seen(request: Request) -> Response:
    return JSONResponse(SEEN)


async def release(request: Request) -> Response:
    RELEASED.set()
    return Response()


async def wait_until_broken_off(request: Request) -> Response:
    await asyncio.wait_for(BROKEN_OFF.wait(), 15)
    BROKEN_OFF.clear()
    return Response()


app = Starlette(
    routes=[
        Route("/v1/chat/completions", complete, methods=["POST"]),
        Route("/v1/models", models),
        Route("/seen", seen),
        Route("/release", release),
        Route("/broken-off", wait_until_broken_off),
    ]
)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="critical", timeout_graceful_shutdown=0)
