"""An OpenAI-compatible API server for tests: `python -m tests.server.compat.agentkit.chat.upstream_program PORT`.

The requested model decides how it behaves. It records its requests and whether a client disconnected.
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

REQUESTS: list[dict[str, Any]] = []
DISCONNECTED = asyncio.Event()
RELEASED = asyncio.Event()
WORDS = ("Sodium ", "is ", "cheaper.")
# Spaces, order, escapes and fields as no library writes them: they must be relayed unchanged.
ODD = (
    b'{ "id":"x-1", "object" : "chat.completion","vendor":{"caf\\u00e9":[1, 2.50]},\n "model":"odd-1", "choices":'
    b'[{"finish_reason":"stop","index":0,"message":{"content":"Sodium is cheaper.","role":"assistant"}}],'
    b' "usage":{"total_tokens":7} }\n'
)
ODD_HEADERS = {
    "x-ratelimit-remaining-requests": "9",
    "openai-organization": "the-operator",
    "x-ratelimit-account": "the-operator",
    "set-cookie": "session=the-operator",
}


class HangingResponse(StreamingResponse):
    """A stream of two words that then sends nothing until its client disconnects."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            DISCONNECTED.set()


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


async def crashing() -> AsyncIterator[bytes]:
    yield event({"role": "assistant", "content": WORDS[0]})
    raise RuntimeError("the upstream crashes")


async def complete(request: Request) -> Response:
    body = await request.body()
    payload = msgspec.json.decode(body)
    REQUESTS.append({"headers": dict(request.headers.items()), "body": body.decode(), "json": payload})
    match payload.get("model"):
        case "odd":
            return Response(ODD, media_type="application/json; charset=utf-8", headers=ODD_HEADERS)
        case "hanging":
            return HangingResponse(hanging(), media_type="text/event-stream")
        case "crashing":
            return StreamingResponse(crashing(), media_type="text/event-stream")
        case "slow":
            await asyncio.wait_for(RELEASED.wait(), 15)
            return Response(ODD, media_type="application/json")
        case "silent":
            await asyncio.Event().wait()
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
                StreamingResponse(streaming(), media_type="text/event-stream")
                if payload.get("stream")
                else _completion(payload)
            )


def _completion(payload: dict[str, Any]) -> Response:
    """Returns another answer for every request."""
    message = {"role": "assistant", "content": f"Answer {len(REQUESTS)} to {len(payload['messages'])} messages."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return JSONResponse(
        {"id": "n-1", "object": "chat.completion", "created": 1, "model": "plain-1", "choices": [choice]}
    )


async def models(request: Request) -> Response:
    REQUESTS.append({"headers": dict(request.headers.items()), "body": "", "json": None})
    return JSONResponse({"object": "list", "data": [{"id": "plain-1", "object": "model", "vendor": 7}]})


async def requests(request: Request) -> Response:
    return JSONResponse(REQUESTS)


async def release(request: Request) -> Response:
    RELEASED.set()
    return Response()


async def wait_for_disconnect(request: Request) -> Response:
    await asyncio.wait_for(DISCONNECTED.wait(), 15)
    DISCONNECTED.clear()
    return Response()


app = Starlette(
    routes=[
        Route("/v1/chat/completions", complete, methods=["POST"]),
        Route("/v1/models", models),
        Route("/requests", requests),
        Route("/release", release),
        Route("/disconnect", wait_for_disconnect),
    ]
)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="critical", timeout_graceful_shutdown=0)
