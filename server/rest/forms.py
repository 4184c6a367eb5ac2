"""Forms as request bodies: `multipart/form-data` (RFC 7578) and `application/x-www-form-urlencoded`.

A body is bounded before it comes here, and is read whole. What is malformed is refused with a sentence.
"""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

from msgspec import Struct

from config.errors import InvalidParams

MULTIPART = "multipart/form-data"
URLENCODED = "application/x-www-form-urlencoded"
JSON = "application/json"
_BOUNDARY = re.compile(r"""(?:^|;)\s*boundary\s*=\s*(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
_PARAMETER = re.compile(rb""";\s*(name|filename)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))""", re.IGNORECASE)
# Browsers write a quote as %22 and line ends as %0D and %0A (WHATWG HTML, multipart/form-data); curl uses a backslash.
_ESCAPED = re.compile(r'\\(["\\])|%(22|0D|0A)')
_PLAIN_ENCODINGS = (b"", b"7bit", b"8bit", b"binary")


class FormFile(Struct, frozen=True, kw_only=True):
    """A file that came with a form. Its name is the client's word, without directories."""

    filename: str
    media_type: str
    content: bytes


class FormSpec(Struct, frozen=True):
    """An input that is sent as a form: which of its values are files, and how many parts there may be. With `or_json`
    it may also come as a JSON object."""

    files: frozenset[str]
    parts_max: int
    or_json: bool = False

    @property
    def media_types(self) -> tuple[str, ...]:
        return (MULTIPART, URLENCODED, JSON) if self.or_json else (MULTIPART, URLENCODED)


def media_type_of(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def read_form(form: FormSpec, content_type: str, body: bytes) -> dict[str, Any]:
    """The values by name: texts, and lists of files. Names of files that bring none have an empty list."""
    values: dict[str, Any] = {name: [] for name in form.files}
    multipart = media_type_of(content_type) == MULTIPART
    for name, value in _parts(form, content_type, body) if multipart else _pairs(form, body):
        if name in form.files:
            values[name] += _files(name, value)
        elif name in values:
            raise InvalidParams(f"{name[:60]}: got it twice, expected it once")
        elif isinstance(value, FormFile):
            raise InvalidParams(f"{name[:60]}: got a file, expected a text")
        else:
            values[name] = value
    return values


def _files(name: str, value: "FormFile | str") -> list[FormFile]:
    """A browser sends an empty part where no file was chosen."""
    if isinstance(value, FormFile):
        return [value] if value.filename or value.content else []
    if value:
        raise InvalidParams(f"{name[:60]}: got a text, expected a file")
    return []


def _pairs(form: FormSpec, body: bytes) -> Iterator[tuple[str, str]]:
    try:
        yield from parse_qsl(body.decode("ascii"), True, False, "utf-8", "strict", form.parts_max)
    except ValueError as error:
        raise InvalidParams(f"the form: got what cannot be read, expected {URLENCODED} in UTF-8") from error


def _parts(form: FormSpec, content_type: str, body: bytes) -> Iterator[tuple[str, FormFile | str]]:
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        raise InvalidParams("Content-Type: got multipart/form-data without a boundary, expected one")
    delimiter = b"\r\n--" + (boundary[1] or boundary[2]).encode("latin-1")
    _, *parts = (b"\r\n" + body).split(delimiter, form.parts_max + 2)
    if not parts or not parts[-1].startswith(b"--"):
        raise InvalidParams(f"the form: got no end or too many parts, expected at most {form.parts_max} parts")
    for part in parts[:-1]:
        yield _part(part)


def _part(part: bytes) -> tuple[str, FormFile | str]:
    head, separator, content = part.partition(b"\r\n\r\n")
    if not separator or head.lstrip(b" \t")[:2] != b"\r\n":
        raise InvalidParams("the form: got a part without a head, expected Content-Disposition and an empty line")
    headers = dict(_headers(head))
    if headers.get(b"content-transfer-encoding", b"").lower() not in _PLAIN_ENCODINGS:
        raise InvalidParams("the form: got an encoded part, expected bytes as they are (RFC 7578 section 4.7)")
    disposition = headers.get(b"content-disposition", b"")
    parameters = {
        found[1].lower(): _unescaped(found[2] or found[3] or b"") for found in _PARAMETER.finditer(disposition)
    }
    name = parameters.get(b"name")
    if name is None or not disposition.lower().startswith(b"form-data"):
        raise InvalidParams("the form: got a part without a name, expected form-data with one")
    if b"filename" not in parameters:
        return name, _decoded(name, content)
    filename = re.split(r"[/\\]", parameters[b"filename"])[-1]
    media_type = headers.get(b"content-type", b"").decode("latin-1")
    return name, FormFile(filename=filename, media_type=media_type_of(media_type), content=content)


def _headers(head: bytes) -> Iterator[tuple[bytes, bytes]]:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        yield name.strip().lower(), value.strip(b" \t")


def _unescaped(value: bytes) -> str:
    text = _decoded("the form", value)
    return _ESCAPED.sub(lambda found: found[1] or chr(int(found[2], 16)), text)


def _decoded(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InvalidParams(f"{name[:60]}: got bytes that are no UTF-8, expected a text") from error
