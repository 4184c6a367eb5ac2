"""Forms as request bodies: `multipart/form-data` (RFC 7578) and `application/x-www-form-urlencoded`.

The caller has already limited the size of the body, so it is parsed as a whole.
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
# RFC 2046 section 5.1.1: a boundary has 1 to 70 characters.
_BOUNDARY = re.compile(r"""(?:^|;)\s*boundary\s*=\s*(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
_PARAMETER = re.compile(rb""";\s*(name|filename)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))""", re.IGNORECASE)
# Browsers write a quote as %22 and line ends as %0D and %0A (WHATWG HTML, multipart/form-data); curl uses a backslash.
_ESCAPED = re.compile(r'\\(["\\])|%(22|0D|0A)')
# These do not change the bytes. RFC 7578 section 4.7 deprecates all others.
_PLAIN_ENCODINGS = (b"", b"7bit", b"8bit", b"binary")


class FormFile(Struct, frozen=True, kw_only=True):
    """A file in a form. Its name is the one that the client sent, without directories."""

    filename: str
    media_type: str
    content: bytes


class PartHead(Struct, frozen=True):
    """What the headers of a part say. `filename` is None for a part that is not a file."""

    name: str
    filename: str | None
    media_type: str


class FormSpec(Struct, frozen=True):
    """An input that is sent as a form: which of its fields are files, and how many parts it may have.

    With `accepts_json` it may also be sent as a JSON object.
    """

    files: frozenset[str]
    parts_max: int
    accepts_json: bool = False

    @property
    def media_types(self) -> tuple[str, ...]:
        return (MULTIPART, URLENCODED, JSON) if self.accepts_json else (MULTIPART, URLENCODED)


def media_type_of(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def read_form(form: FormSpec, content_type: str, body: bytes) -> dict[str, Any]:
    """Returns the values by name: strings, and lists of files. File fields without a file have an empty list."""
    values: dict[str, Any] = {name: [] for name in form.files}
    is_multipart = media_type_of(content_type) == MULTIPART
    for name, value in _parts(form, content_type, body) if is_multipart else _pairs(form, body):
        if name in form.files:
            if not isinstance(value, FormFile) and value:
                raise InvalidParams(f"{name[:60]}: expected a file, got text")
            # Browsers send an empty part if no file was chosen.
            if isinstance(value, FormFile) and (value.filename or value.content):
                values[name].append(value)
        elif name in values:
            raise InvalidParams(f"{name[:60]}: expected one value, got several")
        elif isinstance(value, FormFile):
            raise InvalidParams(f"{name[:60]}: expected text, got a file")
        else:
            values[name] = value
    return values


def _pairs(form: FormSpec, body: bytes) -> Iterator[tuple[str, str]]:
    try:
        yield from parse_qsl(body.decode("ascii"), True, False, "utf-8", "strict", form.parts_max)
    except ValueError as error:
        raise InvalidParams(f"form data: expected at most {form.parts_max} fields as {URLENCODED} in UTF-8") from error


def part_delimiter(content_type: str) -> bytes:
    """Returns what separates the parts of a body."""
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        raise InvalidParams("Content-Type: expected multipart/form-data with a boundary, got none")
    return b"\r\n--" + (boundary[1] or boundary[2]).encode("latin-1")


def _parts(form: FormSpec, content_type: str, body: bytes) -> Iterator[tuple[str, FormFile | str]]:
    delimiter = part_delimiter(content_type)
    # RFC 2046 section 5.1.1: the first delimiter may be at the start of the body, and the last ends with two hyphens.
    _, *parts = (b"\r\n" + body).split(delimiter, form.parts_max + 2)
    if not parts or not parts[-1].startswith(b"--"):
        raise InvalidParams(
            f"form data: expected at most {form.parts_max} complete parts, got more or a truncated body"
        )
    for part in parts[:-1]:
        head, separator, content = part.partition(b"\r\n\r\n")
        about = read_part_head(head if separator else b"")
        if about.filename is None:
            yield about.name, _decode(about.name, content)
        else:
            yield about.name, FormFile(filename=about.filename, media_type=about.media_type, content=content)


def read_part_head(head: bytes) -> PartHead:
    """Reads the headers of a part: what is between the delimiter and the empty line."""
    if head.lstrip(b" \t")[:2] != b"\r\n":
        raise InvalidParams("form data: expected Content-Disposition and an empty line at the start of each part")
    lines = (line.partition(b":") for line in head.split(b"\r\n"))
    headers = {name.strip().lower(): value.strip(b" \t") for name, _, value in lines}
    if headers.get(b"content-transfer-encoding", b"").lower() not in _PLAIN_ENCODINGS:
        raise InvalidParams("form data: expected parts without a transfer encoding (RFC 7578 section 4.7)")
    disposition = headers.get(b"content-disposition", b"")
    parameters = {}
    for match in _PARAMETER.finditer(disposition):
        text = _decode("form data", match[2] or match[3] or b"")
        parameters[match[1].lower()] = _ESCAPED.sub(lambda escaped: escaped[1] or chr(int(escaped[2], 16)), text)
    name = parameters.get(b"name")
    if name is None or not disposition.lower().startswith(b"form-data"):
        raise InvalidParams("form data: expected a name in the Content-Disposition of each part")
    # RFC 7578 section 4.2: the path in a file name must not be used.
    filename = re.split(r"[/\\]", parameters[b"filename"])[-1] if b"filename" in parameters else None
    media_type = headers.get(b"content-type", b"").decode("latin-1")
    return PartHead(name, filename, media_type_of(media_type))


def _decode(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InvalidParams(f"{name[:60]}: expected UTF-8 text, got other bytes") from error
