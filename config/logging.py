"""Logging to standard error, as text on a terminal and as JSON elsewhere, with the id and the fields of the request.

Callers must not log credentials or content. As a second safeguard, text that looks like a credential is masked here,
and debug output of libraries, which includes frames and SQL statements, is dropped.
"""

import asyncio
import atexit
import importlib
import itertools
import logging
import re
import secrets
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TextIO

import msgspec
from loguru import logger
from msgspec import Struct, structs

from config.times import format_time

if TYPE_CHECKING:
    from loguru import Message, Record


# -- log repeats -------------------------------------------------------------------------------------------------------
# Limits how often a library logs the same thing.
#
# Clients can cause some lines, such as uvicorn's warning about an invalid request, thousands of times a second.

_INTERVAL_S = 1.0
_KEYS_MAX = 100


class RepeatedLines:
    """Allows one line per second for each key and counts the others. The least recently logged keys are forgotten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def count_omitted(self, key: Hashable) -> int | None:
        """Returns how many lines were left out since the last one, or None if this one is to be left out too."""
        now = self._clock()
        logged_at, omitted = self._lines.get(key, (float("-inf"), 0))
        if now - logged_at < _INTERVAL_S:
            self._lines[key] = (logged_at, omitted + 1)
            return None
        self._lines[key] = (now, 0)
        self._lines.move_to_end(key)
        if len(self._lines) > _KEYS_MAX:
            self._lines.popitem(last=False)
        return omitted


class RequestFields(Struct):
    """Who made a request, and what came of it. Filled in as it becomes known; empty fields are not logged.

    `client` is the id that the credential proves, and `client_name` what the client calls itself.
    """

    request_id: str = ""
    user: str = ""
    client: str = ""
    client_name: str = ""
    method: str = ""
    tool: str = ""
    outcome: str = ""
    trace_id: str = ""


_REQUEST: ContextVar[RequestFields | None] = ContextVar("request", default=None)

# Request ids only have to be unique, so they are counted instead of random.
_PROCESS_ID = secrets.token_hex(4)
_REQUEST_COUNTER = itertools.count(1)

_MASK = "[masked]"

# Every repetition is of one character class and starts at a boundary or a literal, so matching takes linear time.
_CREDENTIAL = re.compile(
    r"""
      (?P<label> (?i: bearer | basic ) (?: [\s:='"\\] | %20 )+
              | (?i: ticket | token ) (?: = | %3D | ['"] \s* : \s* ['"] ) )
      [A-Za-z0-9._~+/=%-]+
    | flo[acdrs]?_ [A-Za-z0-9_-]{8,}
    | (?<! [A-Za-z0-9_-] ) (?: eyJ [A-Za-z0-9_-]{5,} \. [A-Za-z0-9_.-]+
                             | [A-Za-z0-9_-]{16,} \. [A-Za-z0-9_-]{16,} \. [A-Za-z0-9_-]{32,} )
    """,
    re.VERBOSE,
)
_SECRET_NAMES = frozenset(("authorization", "cookie", "password", "secret", "ticket", "token"))

# In text format, line breaks and escape sequences could forge lines or control the terminal, and marks of direction
# could show a line in another order: implicit marks, separators of lines, embeddings, overrides and isolates.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_MARKS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_CONTROLS |= {code: f"\\u{code:04x}" for code in _MARKS}
_CONTROLS_EXCEPT_LAYOUT = {code: text for code, text in _CONTROLS.items() if chr(code) not in "\n\t"}
_NEEDS_QUOTES = re.compile(r"""[\s"=]""")
_RESERVED_FIELDS = frozenset(("time", "level", "message"))
_UNMASKED_TYPES = frozenset((int, float, bool, type(None)))
_LEVELS = (
    (logging.CRITICAL, "CRITICAL"),
    (logging.ERROR, "ERROR"),
    (logging.WARNING, "WARNING"),
    (0, "INFO"),
)


def begin_request(request_id: str = "") -> RequestFields:
    """Makes an id, by default a new one, and empty fields those of the current request: in this task, and in those that
    it starts. Every request has a task of its own, so nothing has to end it."""
    fields = RequestFields(request_id or f"{_PROCESS_ID}{next(_REQUEST_COUNTER):08x}")
    _REQUEST.set(fields)
    return fields


def request_fields() -> RequestFields:
    """Returns the fields of the current request; outside of a request, fields that are never logged."""
    return _REQUEST.get() or RequestFields()


def current_request_id() -> str:
    """Returns the id of the current request, or an empty string outside of a request."""
    return request_fields().request_id


def mask_credentials(text: str) -> str:
    """Masks bearer and basic credentials, API keys, JWTs and WebSocket tickets anywhere in the text."""
    return _CREDENTIAL.sub(lambda match: (match["label"] or "") + _MASK, text)


def configure(
    log_level: Literal["debug", "info", "warning", "error"],
    log_format: Literal["auto", "text", "json"],
    stream: TextIO | None = None,
) -> None:
    """Sends log lines of this program and of libraries to the stream (by default standard error) only."""
    target = stream or sys.stderr
    is_text = log_format == "text" or (log_format == "auto" and target.isatty())
    level = logging.getLevelNamesMapping()[log_level.upper()]
    format_line = _format_text if is_text else _format_json

    def write(line: str) -> None:
        # A log that cannot be written (closed pipe, full disk) must not fail the request.
        try:
            target.write(line + "\n")
            target.flush()
        except (OSError, ValueError):
            pass

    def emit(message: "Message") -> None:
        write(format_line(message.record, str(message)))

    def add_request_id(record: "Record") -> None:
        record["extra"].setdefault("request_id", current_request_id())

    logger.remove()
    logger.configure(patcher=add_request_id)
    # loguru formats the traceback only; `_format_json` and `_format_text` write the rest. diagnose would print the
    # values of variables; catch would print the unmasked record if formatting fails.
    logger.add(emit, level=level, format=lambda _record: "{exception}", backtrace=False, diagnose=False, catch=False)
    # Keeps libraries at info or above, because websockets logs frames and aiosqlite logs statements with values at
    # debug level. httpx2 logs every request at info level.
    handler = _StandardHandler(max(level, logging.INFO))
    logging.basicConfig(handlers=[handler], level=handler.level, force=True)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    _request_log.flush()
    _request_log.write = write if level <= logging.INFO and not is_text else None


class _RequestLog:
    """Where `log_request` writes JSON lines without loguru. All lines of one turn of the event loop are written
    together, because each write is a system call."""

    # None if lines are text, disabled or not configured.
    write: Callable[[str], None] | None = None

    def __init__(self) -> None:
        self.lines: list[str] = []
        # The last second, and its text: formatting a date costs more than the rest of a line.
        self.second, self.second_text = 0, ""

    def flush(self) -> None:
        if self.lines and self.write is not None:
            self.write("\n".join(self.lines))
        self.lines.clear()


_request_log = _RequestLog()
# The last turn of an event loop may end without it.
atexit.register(_request_log.flush)


class _RequestLine(Struct, omit_defaults=True):
    """The JSON line of a request."""

    time: str
    level: str
    message: str
    request_id: str
    ms: float
    user: str = ""
    client: str = ""
    client_name: str = ""
    method: str = ""
    tool: str = ""
    outcome: str = ""
    trace_id: str = ""


def log_request(message: str, fields: RequestFields, milliseconds: float) -> None:
    """Logs a request with its fields. JSON lines bypass loguru, whose records cost more than a whole call."""
    ms = round(milliseconds, 1)
    if _request_log.write is None:
        logger.bind(**structs.asdict(fields), ms=ms).info("{}", message)
        return
    # What `format_time` does.
    now, log = time.time(), _request_log
    second = int(now)
    if second != log.second:
        text = datetime.fromtimestamp(second, UTC).isoformat(timespec="seconds").removesuffix("+00:00")
        log.second, log.second_text = second, text
    line = _RequestLine(
        f"{log.second_text}.{int((now - second) * 1000):03d}Z",
        "info",
        _mask_name(message),
        fields.request_id,
        ms,
        _mask_name(fields.user),
        _mask_name(fields.client),
        _mask_name(fields.client_name),
        fields.method,
        fields.tool,
        fields.outcome,
        fields.trace_id,
    )
    is_first = not log.lines
    try:
        log.lines.append(msgspec.json.encode(line).decode())
    except UnicodeEncodeError:
        log.lines.append(_encode({name: _encodable(value) for name, value in structs.asdict(line).items()}))
    if is_first:
        try:
            asyncio.get_running_loop().call_soon(log.flush)
        except RuntimeError:  # no event loop
            log.flush()


# The same callers and paths come again and again, and masking costs more than the rest of a line.
_mask_name = lru_cache(maxsize=1024)(mask_credentials)


def _format_json(record: "Record", exception: str) -> str:
    line: dict[str, Any] = {
        "time": format_time(record["time"]),
        "level": record["level"].name.lower(),
        "message": mask_credentials(record["message"]),
        "request_id": "",
    }
    line |= {
        name: _masked_value(name, value) for name, value in record["extra"].items() if name not in _RESERVED_FIELDS
    }
    if exception:
        line["exception"] = mask_credentials(exception)
    try:
        return _encode(line)
    except UnicodeEncodeError:
        return _encode({name: _encodable(value) for name, value in line.items()})


def _encode(line: Any) -> str:
    return msgspec.json.encode(line).decode()


def _format_text(record: "Record", exception: str) -> str:
    extra = ""
    for name, value in record["extra"].items():
        if value != "":
            text = str(_masked_value(name, value))
            # Text with spaces, quotation marks or equals signs could pass for other fields.
            quoted = f'"{text.replace(chr(34), chr(39))}"' if _NEEDS_QUOTES.search(text) else text
            extra += f" {name}={quoted}"
    time = record["time"].isoformat(" ", timespec="milliseconds")
    line = f"{time} {record['level'].name:<8} {mask_credentials(record['message'])}{extra}".translate(_CONTROLS)
    return f"{line}\n{mask_credentials(exception).translate(_CONTROLS_EXCEPT_LAYOUT).rstrip()}" if exception else line


def _masked_value(name: str, value: Any) -> Any:
    """Returns numbers and booleans unchanged, and anything else as masked text."""
    if name in _SECRET_NAMES:
        return _MASK
    return value if type(value) in _UNMASKED_TYPES else mask_credentials(str(value))


def _encodable(value: Any) -> Any:
    """Escapes lone surrogates, which represent bytes of a path or header that are not UTF-8."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


class _StandardHandler(logging.Handler):
    """Forwards records of standard `logging` (uvicorn, websockets, asyncio) to loguru. Repeated warnings without a
    traceback are counted instead."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._repeated = RepeatedLines()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):
            text = str(record.msg)  # mismatched arguments: logging itself would print them unmasked
        if record.levelno >= logging.WARNING and not record.exc_info:
            omitted = self._repeated.count_omitted((record.name, str(record.msg)))
            if omitted is None:
                return
            text += f" ({omitted} more since the last such line)" if omitted else ""
        level = next(name for floor, name in _LEVELS if record.levelno >= floor)
        logger.opt(exception=record.exc_info).bind(logger=record.name).log(level, text)


# -- event loop --------------------------------------------------------------------------------------------------------
# The event loops of this process: those of uvloop if it is installed (the extra `fast`), or else of asyncio.


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
    except ImportError:
        return asyncio.new_event_loop()
    return loop
