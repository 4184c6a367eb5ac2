"""Forms as request bodies."""

from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import InvalidParams
from server.rest.forms import MULTIPART, URLENCODED, FormFile, FormSpec, read_form
from tests.cases import each_case

FORM = FormSpec(frozenset(("files",)), 20)
BOUNDARY = "----WebKitFormBoundary7MA4YWxkTrZu0gW"
NAMES = st.text(st.characters(codec="utf-8", min_codepoint=32), min_size=1, max_size=10).filter(
    lambda name: name != "files"
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)


def quoted(text: str) -> str:
    """Escapes a name as browsers do."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def part(name: str, content: bytes, more: str = "", head: str = "") -> bytes:
    return (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}{head}\r\n\r\n'.encode()
        + content
        + b"\r\n"
    )


def multipart(*parts: bytes) -> dict[str, Any]:
    body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
    return read_form(FORM, f"{MULTIPART}; boundary={BOUNDARY}", body)


@given(st.dictionaries(NAMES.filter(lambda n: "\\" not in n and "%" not in n), TEXTS, max_size=5))
def test_multipart_text_fields_round_trip(values: dict[str, str]) -> None:
    assert multipart(*(part(quoted(name), text.encode()) for name, text in values.items())) == {**values, "files": []}


@given(st.dictionaries(NAMES, TEXTS, max_size=5))
def test_urlencoded_fields_round_trip(values: dict[str, str]) -> None:
    assert read_form(FORM, URLENCODED, urlencode(values).encode()) == {**values, "files": []}


@given(st.lists(st.binary(max_size=100), max_size=3))
def test_file_contents_round_trip(contents: list[bytes]) -> None:
    parts = [part("files", c, '; filename="a.txt"', "\r\nContent-Type: text/plain; charset=utf-8") for c in contents]

    assert multipart(*parts)["files"] == [
        FormFile(filename="a.txt", media_type="text/plain", content=content) for content in contents
    ]


@given(st.binary(max_size=200), st.sampled_from((URLENCODED, f"{MULTIPART}; boundary=x", MULTIPART)))
def test_arbitrary_bodies_are_parsed_or_rejected(body: bytes, content_type: str) -> None:
    with suppress(InvalidParams):
        assert read_form(FORM, content_type, body)["files"] == []


@each_case(
    ("sent_name", "expected"),
    [
        ("note.txt", "note.txt"),
        ("../../etc/passwd", "passwd"),
        ("C:\\notes\\a.txt", "a.txt"),
        ("%22quoted%22.txt", '"quoted".txt'),
        ('\\"quoted\\".txt', '"quoted".txt'),
        ("naïve.txt", "naïve.txt"),
    ],
)
def test_directories_are_removed_from_file_names(sent_name: str, expected: str) -> None:
    [file] = multipart(part("files", b"x", f'; filename="{sent_name}"'))["files"]

    assert file.filename == expected


def test_an_empty_file_field_is_no_file() -> None:
    assert multipart(part("files", b"", '; filename=""'))["files"] == []
    assert multipart(part("files", b""))["files"] == []


@each_case(
    ("parts", "expected_message"),
    [
        ([part("a", b"1"), part("a", b"2")], "a: expected one value, got several"),
        ([part("a", b"1", '; filename="f"')], "a: expected text, got a file"),
        ([part("files", b"text")], "files: expected a file, got text"),
        ([part("a", b"\xff")], "a: expected UTF-8 text"),
        (
            [part("a", b"eA==", "", "\r\nContent-Transfer-Encoding: base64")],
            "expected parts without a transfer encoding",
        ),
        (
            [f"--{BOUNDARY}\r\nContent-Disposition: form-data\r\n\r\nx\r\n".encode()],
            "expected a name in the Content-Disposition",
        ),
        ([f"--{BOUNDARY}\r\n\r\nx\r\n".encode()], "expected Content-Disposition and an empty line"),
        ([f"--{BOUNDARY}\r\nx\r\n".encode()], "expected Content-Disposition and an empty line"),
        ([part("a", b"1") * 30], "at most 20 complete parts"),
    ],
)
def test_an_invalid_form_is_rejected_with_a_reason(parts: list[bytes], expected_message: str) -> None:
    with pytest.raises(InvalidParams, match=expected_message):
        multipart(*parts)


def test_a_truncated_form_is_rejected() -> None:
    with pytest.raises(InvalidParams, match="truncated body"):
        read_form(FORM, f"{MULTIPART}; boundary={BOUNDARY}", part("a", b"1"))


def test_too_many_fields_are_rejected() -> None:
    with pytest.raises(InvalidParams, match="expected at most 20 fields"):
        read_form(FORM, URLENCODED, b"&".join(b"a%d=1" % number for number in range(30)))
