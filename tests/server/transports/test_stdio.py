"""MCP over stdin and stdout: one message per line, and the end of the input ends the server."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from auth.authenticator import local_principal
from server.lifespan import open_runtime
from server.runtime import Runtime
from server.transports.stdio import serve_stdio
from tests.cases import each_case
from tests.live import make_settings
from tests.server.clients import ELICITATION, handshake, message, modern_params, text_of
from tests.server.http_client import WAIT_MAX_S
from tests.server.sample_catalog import SampleCatalog

WAIT = {"name": "wait", "arguments": {"gate": "g"}}


class Pipes:
    """The client's ends of the two pipes."""

    def __init__(self, runtime: Runtime, to_server: BinaryIO, from_server: asyncio.StreamReader) -> None:
        self.runtime = runtime
        self.serving: asyncio.Task[None]
        self._to_server = to_server
        self._from_server = from_server

    async def send(self, body: Any) -> None:
        line = body if isinstance(body, bytes) else msgspec.json.encode(body) + b"\n"
        async with asyncio.timeout(WAIT_MAX_S):
            await asyncio.to_thread(self._to_server.write, line)
            await asyncio.to_thread(self._to_server.flush)

    async def receive(self) -> Any:
        """Reads the next message; None if the server has closed the pipe."""
        async with asyncio.timeout(WAIT_MAX_S):
            line = await self._from_server.readline()
        assert line.endswith(b"\n") or not line
        return msgspec.json.decode(line) if line else None

    async def end(self) -> None:
        """Closes the input and waits for the server to end."""
        self._to_server.close()
        async with asyncio.timeout(WAIT_MAX_S):
            await self.serving


@asynccontextmanager
async def open_pipes(tmp_path: Path, samples: SampleCatalog, **changes: Any) -> AsyncIterator[Pipes]:
    async with open_runtime(make_settings(tmp_path, jwt_secret="", **changes), catalog=samples.catalog) as runtime:
        principal = local_principal(await runtime.registry.add_user("ada"))
        (server_in, client_out), (client_in, server_out) = os.pipe(), os.pipe()
        reader = asyncio.StreamReader(limit=2**26)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(client_in, "rb")
        )
        with os.fdopen(server_in, "rb") as stdin, os.fdopen(server_out, "wb") as stdout:
            pipes = Pipes(runtime, os.fdopen(client_out, "wb"), reader)
            pipes.serving = asyncio.create_task(serve_stdio(runtime, principal, stdin, stdout))
            yield pipes
            await pipes.end()
        transport.close()


async def test_both_eras_are_served_as_the_chosen_user(tmp_path: Path, samples: SampleCatalog) -> None:
    async with open_pipes(tmp_path, samples) as pipes:
        await pipes.send(message("server/discover", modern_params(), 1))
        discovery = await pipes.receive()
        await pipes.send(handshake(request_id=2))
        handshake_response = await pipes.receive()
        await pipes.send(message("tools/call", {"name": "echo", "arguments": {"text": "hi"}}, 3))
        call = await pipes.receive()

    assert discovery["result"]["supportedVersions"] == ["2026-07-28"]
    assert handshake_response["result"]["protocolVersion"] == "2025-11-25"
    assert call["result"]["structuredContent"] == {"text": "hi", "user": "ada"}


async def test_a_response_is_one_line(tmp_path: Path, samples: SampleCatalog) -> None:
    text = "two\nlines\r\nand\u2028three"
    async with open_pipes(tmp_path, samples) as pipes:
        await pipes.send(message("tools/call", modern_params({"name": "echo", "arguments": {"text": text}}), 1))

        assert (await pipes.receive())["result"]["structuredContent"]["text"] == text


@each_case("line", [b"not json\n", b"\xff\xfe\n", b"{}\n", b"[]\n", b"null\n", b"[" * 5000 + b"\n"])
async def test_a_malformed_line_gets_an_error_and_the_next_is_served(
    tmp_path: Path, samples: SampleCatalog, line: bytes
) -> None:
    async with open_pipes(tmp_path, samples) as pipes:
        await pipes.send(line)
        await pipes.send(message("ping", {}, 1))
        rejected, response = await pipes.receive(), await pipes.receive()

    assert (rejected["id"], rejected["error"]["code"] in (-32700, -32600)) == (None, True)
    assert response == {"jsonrpc": "2.0", "id": 1, "result": {}}


@each_case(
    ("line", "request_id"),
    [
        (rb'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"text":"\ud83d"}}', 7),
        (
            rb'{"jsonrpc":"2.0","id":"\ud83d\ude00\\ud83d","method":"ping","params":{"text":"a\ude00"}}',
            "\U0001f600\\ud83d",
        ),
        (rb'{"jsonrpc":"2.0","id":"\ud83d","method":"ping"}', None),
        (rb'{"jsonrpc":"2.0","id":7,"result":{"text":"\ud83d"}}', None),
        (rb'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"text":"\ud83d"}', None),
    ],
)
async def test_request_with_half_an_emoji_is_refused_under_its_id(
    tmp_path: Path, samples: SampleCatalog, line: bytes, request_id: str | int | None
) -> None:
    async with open_pipes(tmp_path, samples) as pipes:
        await pipes.send(line + b"\n")
        rejected = await pipes.receive()

    assert (rejected["id"], rejected["error"]["code"]) == (request_id, -32700)


async def test_blank_lines_and_carriage_returns_are_ignored(tmp_path: Path, samples: SampleCatalog) -> None:
    async with open_pipes(tmp_path, samples) as pipes:
        await pipes.send(b"\n  \n\r\n")
        await pipes.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\r\n')

        assert (await pipes.receive())["id"] == 1


@each_case("size", [1025, 5000, 3_000_000])
async def test_a_too_long_line_is_skipped_and_reported(tmp_path: Path, samples: SampleCatalog, size: int) -> None:
    async with open_pipes(tmp_path, samples, body_max_bytes=1024) as pipes:
        await pipes.send(b"x" * size + b"\n")
        await pipes.send(message("ping", {}, 1))
        rejected, response = await pipes.receive(), await pipes.receive()

    assert (rejected["id"], rejected["error"]["code"]) == (None, 413)
    assert response["id"] == 1


async def test_running_calls_finish_after_the_end_of_input(tmp_path: Path, samples: SampleCatalog) -> None:
    async with open_pipes(tmp_path, samples) as pipes:
        await pipes.send(message("tools/call", modern_params(WAIT), 1))
        await asyncio.wait_for(samples.gates["g"].reached.wait(), WAIT_MAX_S)
        ending = asyncio.create_task(pipes.end())
        await asyncio.sleep(0)
        samples.gates["g"].opened.set()

        assert (await pipes.receive())["result"]["structuredContent"]["user"] == "ada"
        await ending


async def test_a_last_line_without_line_break_is_a_message(tmp_path: Path, samples: SampleCatalog) -> None:
    async with open_pipes(tmp_path, samples) as pipes:
        await pipes.send(b'{"jsonrpc":"2.0","id":9,"method":"ping"}')
        await pipes.end()

        assert (await pipes.receive())["id"] == 9


async def test_the_session_ends_with_the_input(tmp_path: Path, samples: SampleCatalog) -> None:
    async with open_pipes(tmp_path, samples) as pipes:
        await pipes.send(handshake())
        await pipes.receive()
        assert len(pipes.runtime.sessions) == 1

        await pipes.end()

        assert len(pipes.runtime.sessions) == 0


async def test_an_elicitation_is_sent_and_answered_over_the_pipes(tmp_path: Path, samples: SampleCatalog) -> None:
    async with open_pipes(tmp_path, samples) as pipes:
        await pipes.send(handshake(capabilities=ELICITATION))
        await pipes.receive()
        await pipes.send(message("tools/call", {"name": "ask_name", "arguments": {"text": "hi"}}, 1))
        elicitation = await pipes.receive()
        await pipes.send({"jsonrpc": "2.0", "id": elicitation["id"], "result": {"content": {"name": "Ada"}}})

        assert "Ada: hi" in text_of((await pipes.receive())["result"])


async def test_a_cancelled_call_gets_no_response(tmp_path: Path, samples: SampleCatalog) -> None:
    async with open_pipes(tmp_path, samples) as pipes:
        await pipes.send(message("tools/call", modern_params(WAIT), 1))
        await asyncio.wait_for(samples.gates["g"].reached.wait(), WAIT_MAX_S)
        await pipes.send(message("notifications/cancelled", {"requestId": 1}))
        await asyncio.wait_for(samples.gates["g"].cancelled.wait(), WAIT_MAX_S)
        await pipes.send(message("ping", {}, 2))

        assert (await pipes.receive())["id"] == 2


async def test_messages_can_be_read_from_a_file(tmp_path: Path, samples: SampleCatalog) -> None:
    requests, responses = tmp_path / "in", tmp_path / "out"
    requests.write_bytes(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n' + b"x" * 5000 + b"\n[]\n")
    settings = make_settings(tmp_path / "data", jwt_secret="", body_max_bytes=1024)

    async with open_runtime(settings, catalog=samples.catalog) as runtime:
        principal = local_principal(await runtime.registry.add_user("ada"))
        with requests.open("rb") as stdin, responses.open("wb") as stdout:
            async with asyncio.timeout(WAIT_MAX_S):
                await serve_stdio(runtime, principal, stdin, stdout)

    # The order of responses is not defined.
    ids = sorted(str(msgspec.json.decode(line).get("id")) for line in responses.read_bytes().splitlines())
    assert ids == ["1", "None", "None"]


async def test_a_client_that_exits_during_its_call_is_harmless(tmp_path: Path, samples: SampleCatalog) -> None:
    async with open_runtime(make_settings(tmp_path, jwt_secret=""), catalog=samples.catalog) as runtime:
        principal = local_principal(await runtime.registry.add_user("ada"))
        (server_in, client_out), (client_in, server_out) = os.pipe(), os.pipe()
        os.write(client_out, msgspec.json.encode(message("tools/call", modern_params(WAIT), 1)) + b"\n")
        with os.fdopen(server_in, "rb") as stdin, os.fdopen(server_out, "wb", buffering=0) as stdout:
            serving = asyncio.create_task(serve_stdio(runtime, principal, stdin, stdout))
            await asyncio.wait_for(samples.gates["g"].reached.wait(), WAIT_MAX_S)

            os.close(client_in)
            os.close(client_out)
            samples.gates["g"].opened.set()

            await asyncio.wait_for(serving, WAIT_MAX_S)
