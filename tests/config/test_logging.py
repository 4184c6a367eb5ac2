"""Every event is one line with the id of its request and never contains a credential."""

import asyncio
import io
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextvars import copy_context
from datetime import UTC, datetime
from typing import Any, Literal
from unicodedata import bidirectional

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from loguru import logger

from config.logging import (
    RequestFields,
    begin_request,
    configure,
    current_request_id,
    log_request,
    mask_credentials,
)
from tests.cases import each_case

JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6ImF0K2p3dCJ9.eyJzdWIiOiJjYW5hcnkifQ.CANARYsignatureCANARYsignatureCANARYsignatu"
CREDENTIALS = {
    "bearer": "Bearer CANARY123",
    "bearer in a header": "authorization: bearer   CANARY123",
    "bearer in a list of bytes": "(b'authorization', b'Bearer CANARY123')",
    "bearer in JSON": '{"Bearer": "CANARY123"}',
    "bearer encoded": "Bearer%20CANARY123",
    "basic": "Basic Q0FOQVJZOkNBTkFSWQ==CANARY",
    "API key": "flo_CANARYabcdefghijklmnopqrstuvwxyz0123456789-_",
    "OAuth access token": "floa_CANARYabcdefghijklmnopqrstuvwxyz0123456789-_",
    "OAuth refresh token": "flor_CANARYabcdefghijklmnopqrstuvwxyz0123456789-_",
    "OAuth client secret": "flos_CANARYabcdefghijklmnopqrstuvwxyz0123456789-_",
    "OAuth code": "floc_CANARYabcdefghijklmnopqrstuvwxyz0123456789-_",
    "OAuth device code": "flod_CANARYabcdefghijklmnopqrstuvwxyz0123456789-_",
    "API key inside a word": "keyflo_CANARYabcdefghijklmnopqrstuvwxyz012345",
    "JWT": JWT,
    "JWT after a line break": f"\n{JWT}",
    "JWT in quotes": f"'{JWT}'",
    "JWT without signature": "eyJhbGciOiJub25lIn0.eyJDQU5BUlkiOjF9CANARY.",
    "JWT whose header starts with a space": "IHsiYWxnIjoiSFMyNTYifQ.eyJzdWIiOiJjYW5hcnkifQ." + "CANARY" * 8,
    "encrypted JWT": "eyJhbGciOiJkaXIifQ..aXZpdml2aXY.CANARYCANARY.dGFn",
    "ticket in a query": "/mcp/ws?ticket=CANARY-abc_123&x=1",
    "ticket encoded": "ticket%3DCANARY",
    "ticket in JSON": '{"ticket":"CANARY"}',
    "token in a query": "?access_token=CANARY",
}
# The embeddings, overrides and isolates of UAX #9; its three implicit marks have the directions of letters.
_DIRECTIONS = frozenset(("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"))
HARMLESS = (
    "POST /mcp 200 in 1.25 ms",
    "user u_abcdefghijklmnopqrstuvwxyz",
    "uvicorn.protocols.http.httptools_impl",
    'File "/srv/site-packages/starlette/middleware/errors.py", line 1',
    "token expired",
    "2026-11-15T02:11:03.123+00:00",
)

Format = Literal["text", "json"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Unwritable(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


class RequestWithToken:
    """An object whose text contains a credential."""

    def __str__(self) -> str:
        return f"request with {JWT}"


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logger.remove()
    root.handlers[:] = handlers
    root.setLevel(level)


def log_output(log_format: Format, act: Callable[[], Any], level: Literal["debug", "info", "warning"] = "info") -> str:
    stream = io.StringIO()
    configure(level, log_format, stream)
    act()
    return stream.getvalue()


def line_of(act: Callable[[], Any]) -> dict[str, Any]:
    text = log_output("json", act)
    assert text.endswith("\n")
    assert text.count("\n") == 1
    line: dict[str, Any] = json.loads(text)
    return line


def log_exception(text: str) -> None:
    local = text  # a variable whose value must not be logged
    try:
        raise ValueError(local)
    except ValueError:
        logger.exception("it failed")


def test_json_line_has_time_level_message_request_id_and_bound_fields() -> None:
    line = line_of(lambda: logger.bind(status=200, ms=1.5, path="/mcp", ok=True, gone=None).warning("served"))
    time = datetime.fromisoformat(line.pop("time"))
    assert time.utcoffset() == UTC.utcoffset(None)
    assert time.microsecond % 1000 == 0
    assert list(line)[:3] == ["level", "message", "request_id"]
    fields = {"status": 200, "ms": 1.5, "path": "/mcp", "ok": True, "gone": None}
    assert line == {"level": "warning", "message": "served", "request_id": ""} | fields


def test_line_of_a_request_has_its_fields_in_both_formats() -> None:
    def act() -> None:
        fields = begin_request("r-1")
        fields.user, fields.client, fields.client_name = "ada", "key_1", "Claude Code"
        fields.tool, fields.outcome = "knowledge_search", "ok"
        log_request("POST /mcp 200", fields, 12.345)

    line = line_of(lambda: copy_context().run(act))
    del line["time"]
    assert line == {
        "level": "info",
        "message": "POST /mcp 200",
        "request_id": "r-1",
        "user": "ada",
        "client": "key_1",
        "client_name": "Claude Code",
        "tool": "knowledge_search",
        "outcome": "ok",
        "ms": 12.3,
    }
    assert log_output("text", lambda: copy_context().run(act)).partition(" INFO     ")[2] == (
        "POST /mcp 200 request_id=r-1 user=ada client=key_1 "
        'client_name="Claude Code" tool=knowledge_search outcome=ok ms=12.3\n'
    )


@each_case("log_format", ["text", "json"])
@each_case("text", CREDENTIALS.values())
def test_line_of_a_request_contains_no_credential(log_format: Format, text: str) -> None:
    fields = RequestFields(user=text, client=text, client_name=text)
    output = log_output(log_format, lambda: log_request(f"GET /{text} 404", fields, 1))
    assert output.count("[masked]") >= 4
    assert "CANARY" not in output


def test_client_name_cannot_forge_a_field_or_a_line() -> None:
    fields = RequestFields(user="eve", client_name='x" user=admin\n2026 INFO \udcff')
    text = log_output("text", lambda: log_request("POST /mcp 200", fields, 1))
    assert text.count("\n") == 1
    assert "user=eve client_name=\"x' user=admin\\x0a2026 INFO " in text
    assert line_of(lambda: log_request("POST /mcp 200", fields, 1))["user"] == "eve"


async def test_the_lines_of_one_turn_of_the_event_loop_are_written_together() -> None:
    class Writes(io.StringIO):
        count = 0

        def write(self, text: str) -> int:
            self.count += 1
            return super().write(text)

    stream = Writes()
    configure("info", "json", stream)
    for number in range(3):
        log_request(f"POST /{number} 200", RequestFields(), 1)
    await asyncio.sleep(0)
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == [
        f"POST /{number} 200" for number in range(3)
    ]
    assert stream.count == 1


def test_a_line_is_written_even_if_the_event_loop_ends_in_its_turn() -> None:
    program = (
        "import asyncio; from config.logging import *; configure('info', 'json');\n"
        "async def act(): log_request('POST /mcp 200', RequestFields(), 1)\n"
        "asyncio.run(act())"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(result.stderr)["message"] == "POST /mcp 200"


def test_requests_are_not_logged_below_the_level() -> None:
    assert log_output("json", lambda: log_request("POST /mcp 200", RequestFields(), 1), "warning") == ""


def test_text_line_has_level_message_and_bound_fields() -> None:
    text = log_output("text", lambda: logger.bind(status=200).info("served"))
    assert text.endswith(" INFO     served status=200\n")


@each_case(("stream", "is_json"), [(Terminal(), False), (io.StringIO(), True)])
def test_auto_is_text_on_a_terminal_and_json_elsewhere(stream: io.StringIO, is_json: bool) -> None:
    configure("info", "auto", stream)
    logger.info("served")
    assert stream.getvalue().startswith("{") is is_json


def test_lines_are_written_to_standard_error_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "json")
    logger.info("served")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["message"] == "served"


def test_every_line_of_a_request_has_its_request_id() -> None:
    def serve(request_id: str) -> None:
        begin_request(request_id)
        assert current_request_id() == request_id
        logger.info("ours")
        logging.getLogger("some.library").info("the library's")

    def act() -> None:
        for request_id in ("ada-1", "bob-1"):
            copy_context().run(serve, request_id)
        logger.info("outside of a request")

    lines = [json.loads(line) for line in log_output("json", act).splitlines()]
    assert [line["request_id"] for line in lines] == ["ada-1", "ada-1", "bob-1", "bob-1", ""]
    assert current_request_id() == ""


def test_new_request_ids_are_unique_and_not_masked() -> None:
    ids = {copy_context().run(begin_request).request_id for _ in range(1000)}
    assert len(ids) == 1000
    assert all(mask_credentials(request_id) == request_id for request_id in ids)


def test_lines_below_the_level_are_not_written() -> None:
    def act() -> None:
        logger.debug("hidden")
        logger.info("hidden")
        logging.getLogger("uvicorn").info("hidden")
        logger.warning("shown")
        logging.getLogger("uvicorn").warning("shown")

    assert [json.loads(line)["message"] for line in log_output("json", act, "warning").splitlines()] == ["shown"] * 2


def test_configuring_again_replaces_the_configuration() -> None:
    first = io.StringIO()
    configure("info", "json", first)

    def act() -> None:
        logger.info("once")
        logging.getLogger("x").info("once")

    text = log_output("json", act)
    assert first.getvalue() == ""
    assert text.count("\n") == 2


def test_library_lines_keep_logger_level_and_traceback() -> None:
    def act() -> None:
        try:
            raise KeyError("gone")
        except KeyError:
            logging.getLogger("uvicorn.error").exception("%s failed {braces}", "it")

    line = line_of(act)
    assert (line["logger"], line["level"], line["message"]) == ("uvicorn.error", "error", "it failed {braces}")
    assert line["exception"].startswith("Traceback (most recent call last):")
    assert line["exception"].rstrip().endswith("KeyError: 'gone'")


@each_case(("number", "name"), [(20, "info"), (25, "info"), (30, "warning"), (40, "error"), (60, "critical")])
def test_library_levels_are_mapped(number: int, name: str) -> None:
    assert line_of(lambda: logging.getLogger("x").log(number, "text"))["level"] == name


def test_library_debug_lines_are_dropped_even_at_debug() -> None:
    library = logging.getLogger("verbose.library")
    library.setLevel(logging.DEBUG)

    def act() -> None:
        library.debug("< TEXT content")
        logger.debug("ours")

    text = log_output("json", act, "debug")
    assert [json.loads(line)["message"] for line in text.splitlines()] == ["ours"]


def test_mismatched_library_arguments_are_left_out() -> None:
    assert line_of(lambda: logging.getLogger("x").info("%d of", "CANARY"))["message"] == "%d of"


def test_error_with_empty_exc_info_is_one_line() -> None:
    assert line_of(lambda: logging.getLogger("x").error("odd", exc_info=(None, None, None)))["message"] == "odd"


@each_case("text", CREDENTIALS.values())
def test_credential_is_masked(text: str) -> None:
    assert "CANARY" not in mask_credentials(f"before {text} after")
    assert mask_credentials(f"before {text} after").startswith("before ")
    assert mask_credentials(f"before {text} after").endswith(" after")


@each_case("text", HARMLESS)
def test_text_without_a_credential_is_unchanged(text: str) -> None:
    assert mask_credentials(text) == text


@each_case("log_format", ["text", "json"])
@each_case("text", CREDENTIALS.values())
def test_no_credential_reaches_the_log(log_format: Format, text: str) -> None:
    def act() -> None:
        logger.info(text)
        logger.info("formatted {}", text)
        logger.bind(header=text).info("bound")
        logger.bind(headers=[text], raw=text.encode(), nested={"a": {"b": text}}).info("bound deeper")
        with logger.contextualize(request=text):
            logger.info("contextualized")
        log_exception(text)
        logging.getLogger("uvicorn.error").warning("library %s", text)
        logging.getLogger("uvicorn.error").error("library", exc_info=ValueError(text))
        logger.bind(request_id=text).info("as request id")

    output = log_output(log_format, act)
    assert output.count("library") >= 2
    assert "CANARY" not in output


@each_case("log_format", ["text", "json"])
def test_fields_named_like_credentials_are_always_masked(log_format: Format) -> None:
    names = ("authorization", "cookie", "password", "secret", "ticket", "token")
    output = log_output(log_format, lambda: logger.bind(**dict.fromkeys(names, "CANARY")).info("bound"))
    assert output.count("[masked]") == len(names)
    assert "CANARY" not in output


@each_case("log_format", ["text", "json"])
def test_object_is_logged_as_masked_text(log_format: Format) -> None:
    output = log_output(log_format, lambda: logger.bind(request=RequestWithToken()).info("bound"))
    assert "request with [masked]" in output


@each_case("log_format", ["text", "json"])
def test_traceback_does_not_contain_values_of_variables(log_format: Format) -> None:
    def act() -> None:
        password = "CANARY"
        try:
            dict[int, str]()[len(password)]
        except KeyError:
            logger.exception("it failed")

    output = log_output(log_format, act)
    assert "KeyError: 6" in output
    assert "CANARY" not in output.replace('password = "CANARY"', "")


def test_text_line_escapes_control_characters() -> None:
    output = log_output("text", lambda: logger.bind(name="\x1b[2J").info("one\n2026 INFO two\r\x9b"))
    assert output.count("\n") == 1
    assert "one\\x0a2026 INFO two\\x0d\\x9b name=\\x1b[2J" in output


def test_text_line_escapes_marks_that_change_the_direction_of_text() -> None:
    marks = "".join(chr(code) for code in range(0x10000) if bidirectional(chr(code)) in _DIRECTIONS)
    marks = f"\u061c\u200e\u200f{marks}\u2028\u2029"
    output = log_output("text", lambda: log_request("GET /", RequestFields(client_name=marks), 1))
    assert not set(marks) & set(output)
    assert "\\u061c\\u200e\\u200f\\u202a" in output


def test_text_traceback_keeps_lines_and_escapes_control_characters() -> None:
    output = log_output("text", lambda: log_exception("red \x1b[31m"))
    assert output.splitlines()[1] == "Traceback (most recent call last):"
    assert output.endswith("ValueError: red \\x1b[31m\n")


def test_bound_field_cannot_replace_time_level_or_message() -> None:
    line = line_of(lambda: logger.bind(time="x", level="x", message="x").info("served"))
    assert (line["level"], line["message"]) == ("info", "served")
    assert line["time"] != "x"


@given(st.text() | st.text(st.characters(categories=["Cs", "Cc", "L"])))
@example("\udcff")
@example(f"\n{JWT}")
@example(f"\x01{JWT}")
@example('Bearer "\\')
def test_arbitrary_message_and_field_are_one_line_of_json(text: str) -> None:
    line = line_of(lambda: logger.bind(field=text).info("{}", text))
    assert line["message"] == line["field"]
    assert line["level"] == "info"


@given(st.text())
def test_masking_is_idempotent(text: str) -> None:
    assert mask_credentials(mask_credentials(text)) == mask_credentials(text)


def test_unwritable_stream_does_not_fail_the_caller() -> None:
    configure("info", "json", Unwritable())
    logger.info("lost")
    closed = io.StringIO()
    configure("info", "json", closed)
    closed.close()
    logger.info("lost")
    stream = io.StringIO()
    configure("info", "json", stream)
    logger.info("written")
    assert json.loads(stream.getvalue())["message"] == "written"
