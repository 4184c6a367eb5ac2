"""Log lines on standard error, text on a terminal and JSON elsewhere, each with the id of its request.

Callers log no credential and no content. As the last line of defence, whatever looks like a credential is
masked here, and the debug lines of libraries, which print frames and statements, are not passed on.
"""

import itertools
import logging
import re
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TextIO

import msgspec
from loguru import logger

from config.times import format_time

if TYPE_CHECKING:
    from loguru import Message, Record

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")

# A request id only has to be told apart from others, so it is counted, not drawn.
_PROCESS = secrets.token_hex(4)
_COUNT = itertools.count(1)

_MASK = "[masked]"

# Every run is of one class and starts at a boundary or a literal, so a hostile text costs linear time.
_CREDENTIAL = re.compile(
    r"""
      (?P<kept> (?i: bearer | basic ) (?: [\s:='"\\] | %20 )+
              | (?i: ticket | token ) (?: = | %3D | ['"] \s* : \s* ['"] ) )
      [A-Za-z0-9._~+/=%-]+
    | flo_ [A-Za-z0-9_-]{8,}
    | (?<! [A-Za-z0-9_-] ) (?: eyJ [A-Za-z0-9_-]{5,} \. [A-Za-z0-9_.-]+
                             | [A-Za-z0-9_-]{16,} \. [A-Za-z0-9_-]{16,} \. [A-Za-z0-9_-]{32,} )
    """,
    re.VERBOSE,
)
# Paths that cannot carry a credential, so their lines need no masking.
_PLAIN_PATHS = frozenset(("/mcp", "/mcp/", "/healthz", "/readyz", "/metrics"))
_SECRET_NAMES = frozenset(("authorization", "cookie", "password", "secret", "ticket", "token"))

# In text form a line break or an escape sequence would forge lines or steer the terminal.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_CONTROLS_BUT_LAYOUT = {code: text for code, text in _CONTROLS.items() if chr(code) not in "\n\t"}
_OWN_NAMES = frozenset(("time", "level", "message"))
_PLAIN = frozenset((int, float, bool, type(None)))
_LEVELS = (
    (logging.CRITICAL, "CRITICAL"),
    (logging.ERROR, "ERROR"),
    (logging.WARNING, "WARNING"),
    (0, "INFO"),
)


def new_request_id() -> str:
    """Enough to tell the requests of a log apart; it grants nothing."""
    return f"{_PROCESS}{next(_COUNT):08x}"


def current_request_id() -> str:
    """The id of the request being served here, or nothing outside one."""
    return REQUEST_ID.get()


def redact(text: str) -> str:
    """Mask bearer and basic credentials, API keys, JWTs and WebSocket tickets, wherever they stand."""
    return _CREDENTIAL.sub(_mask, text)


def _mask(match: re.Match[str]) -> str:
    return (match["kept"] or "") + _MASK


def configure(
    log_level: Literal["debug", "info", "warning", "error"],
    log_format: Literal["auto", "text", "json"],
    stream: TextIO | None = None,
) -> None:
    """Send our log lines and those of libraries to the stream (standard error), and nowhere else."""
    target = stream or sys.stderr
    is_text = log_format == "text" or (log_format == "auto" and target.isatty())
    level = logging.getLevelNamesMapping()[log_level.upper()]
    logger.remove()
    logger.configure(patcher=_add_request_id)
    # diagnose would print the values of variables; catch would print the record, unmasked, when a line fails.
    write = _writer(target)
    logger.add(
        _sink(write, _text_line if is_text else _json_line),
        level=level,
        format=_exception_only,
        backtrace=False,
        diagnose=False,
        catch=False,
    )
    _route_standard_logging(level)
    _direct.write = write if level <= logging.INFO and not is_text else None


class _Direct:
    """Where `log_request` writes without loguru; None while lines are text, below the level, or not configured."""

    write: Callable[[str], None] | None = None


_direct = _Direct()


def log_request(verb: str, path: str, status: int, milliseconds: float) -> None:
    """The one line of a request. In JSON form it is written here: loguru's record costs more than a whole call."""
    message = f"{verb} {path} {status or '-'} {milliseconds:.1f} ms"
    if _direct.write is None or path not in _PLAIN_PATHS:
        logger.info("{}", message)
        return
    now = format_time(datetime.now(UTC))
    line = {"time": now, "level": "info", "message": message, "request_id": REQUEST_ID.get()}
    _direct.write(msgspec.json.encode(line).decode())


def _add_request_id(record: "Record") -> None:
    record["extra"].setdefault("request_id", REQUEST_ID.get())


def _exception_only(record: "Record") -> str:
    """loguru formats the traceback; the rest of the line is ours."""
    return "{exception}"


def _writer(stream: TextIO) -> Callable[[str], None]:
    def write(line: str) -> None:
        # A log that cannot be written (closed pipe, full disk) must not fail the request it tells of.
        with suppress(OSError, ValueError):
            stream.write(line + "\n")
            stream.flush()

    return write


def _sink(write: Callable[[str], None], line_of: Callable[["Record", str], str]) -> Callable[["Message"], None]:
    def take(message: "Message") -> None:
        write(line_of(message.record, str(message)))

    return take


def _json_line(record: "Record", exception: str) -> str:
    line: dict[str, Any] = {
        "time": format_time(record["time"]),
        "level": record["level"].name.lower(),
        "message": redact(record["message"]),
        "request_id": "",
    }
    line |= {name: _safe(name, value) for name, value in record["extra"].items() if name not in _OWN_NAMES}
    if exception:
        line["exception"] = redact(exception)
    try:
        return msgspec.json.encode(line).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode({name: _encodable(value) for name, value in line.items()}).decode()


def _text_line(record: "Record", exception: str) -> str:
    extra = "".join(f" {name}={_safe(name, value)}" for name, value in record["extra"].items() if value != "")
    time = record["time"].isoformat(" ", timespec="milliseconds")
    line = f"{time} {record['level'].name:<8} {redact(record['message'])}{extra}".translate(_CONTROLS)
    return f"{line}\n{redact(exception).translate(_CONTROLS_BUT_LAYOUT).rstrip()}" if exception else line


def _safe(name: str, value: Any) -> Any:
    """A bound value as it may be shown: numbers as they are, anything else as masked text."""
    if name in _SECRET_NAMES:
        return _MASK
    return value if type(value) in _PLAIN else redact(str(value))


def _encodable(value: Any) -> Any:
    """Lone surrogates, which stand for the bytes of a path or header that are not UTF-8, written out."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


class _StandardHandler(logging.Handler):
    """Hands the records of standard `logging` (uvicorn, websockets, asyncio) to loguru."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):
            text = str(record.msg)  # arguments that do not fit: logging itself would print them unmasked
        level = next(name for floor, name in _LEVELS if record.levelno >= floor)
        logger.opt(exception=record.exc_info).bind(logger=record.name).log(level, text)


def _route_standard_logging(level: int) -> None:
    """Never below info: at debug, websockets logs frames and aiosqlite statements with their values."""
    handler = _StandardHandler(max(level, logging.INFO))
    logging.basicConfig(handlers=[handler], level=handler.level, force=True)
