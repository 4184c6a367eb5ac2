"""The memory that a request takes, which the size of its text says little about: 3.3 MB of nested lists take 158 MB."""

import gc
import operator
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from config.errors import FlorilegiumError
from server.protocol.messages import JSON_ERRORS, check_nesting, decode, decode_json, not_json

# The text, and its strings: one emoji makes all characters of a string take four bytes.
TEXT_BYTES = 4
# An object has one or two blocks of memory, with 45 to 142 bytes on average (CPython 3.11).
_BLOCK_BYTES = 100
# Counting takes about 0.1 ms. A shorter text takes at most 0.1 MB.
_SHORT_TEXT = 2048
_call: Callable[[Any], Any] = operator.call


def decode_and_hold(text: bytes | str, hold: Callable[[int], None]) -> Any:
    """Decodes JSON, and passes the memory of its objects, without that of the text, to `hold`, which may refuse it."""
    if len(text) <= _SHORT_TEXT:
        return decode(text)
    value, size = _decode_and_measure(text)
    try:
        hold(size)
    except FlorilegiumError:
        value = None  # the traceback would keep it
        raise
    check_nesting(text, value)
    return value


def _decode_and_measure(text: bytes | str) -> tuple[Any, int]:
    """The three calls are made from C, so that the interpreter lock is kept and no other thread allocates or frees
    anything meanwhile. The garbage collector is off for the same reason, which also makes decoding faster."""
    calls: tuple[Any, ...] = (sys.getallocatedblocks, partial(decode_json, text), sys.getallocatedblocks)
    gc.disable()
    try:
        before, value, after = map(_call, calls)
    except JSON_ERRORS as error:
        raise not_json() from error
    finally:
        gc.enable()
    return value, (after - before) * _BLOCK_BYTES
