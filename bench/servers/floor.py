"""The cost of Starlette itself: one route that decodes a call and responds without any checks."""

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bench.servers.uvicorn_app import serve_app


class Arguments(Struct):
    text: str


class Params(Struct):
    arguments: Arguments


class ToolCall(Struct):
    id: int
    params: Params


_decode = msgspec.json.Decoder(ToolCall).decode
_encode = msgspec.json.Encoder().encode


async def respond(request: Request) -> Response:
    call = _decode(await request.body())
    content = {"type": "text", "text": _encode(call.params.arguments).decode()}
    result = {"content": [content], "structuredContent": call.params.arguments}
    return Response(_encode({"jsonrpc": "2.0", "id": call.id, "result": result}), media_type="application/json")


if __name__ == "__main__":
    serve_app(Starlette(routes=[Route("/mcp", respond, methods=["POST"])]))
