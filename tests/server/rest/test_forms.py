"""Forms as request bodies."""

from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import InvalidParams
from server.rest.forms import MULTIPART, URLENCODED, FormFile, FormSpec, read_form

FORM = FormSpec(frozenset(("files",)), 20)
BOUNDARY = "----WebKitFormBoundary7MA4YWxkTrZu0gW"
NAMES = st.text(st.characters(codec="utf-8", min_codepoint=32), min_size=1, max_size=10).filter(
    lambda name: name != "files"
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)


def quoted(text: str) -> str:
    """As browsers write a name."""
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
def test_every_text_of_a_multipart_form_comes_back(values: dict[str, str]) -> None:
    assert multipart(*(part(quoted(name), text.encode()) for name, text in values.items())) == {**values, "files": []}


@given(st.dictionaries(NAMES, TEXTS, max_size=5))
def test_every_text_of_an_urlencoded_form_comes_back(values: dict[str, str]) -> None:
    assert read_form(FORM, URLENCODED, urlencode(values).encode()) == {**values, "files": []}


@given(st.lists(st.binary(max_size=100), max_size=3))
def test_every_byte_of_a_file_comes_back(contents: list[bytes]) -> None:
    parts = [part("files", c, '; filename="a.txt"', "\r\nContent-Type: text/plain; charset=utf-8") for c in contents]

    assert multipart(*parts)["files"] == [
        FormFile(filename="a.txt", media_type="text/plain", content=content) for content in contents
    ]


@given(st.binary(max_size=200), st.sampled_from((URLENCODED, f"{MULTIPART}; boundary=x", MULTIPART)))
def test_what_is_no_form_is_refused_or_read_and_never_a_fault(body: bytes, content_type: str) -> None:
    with suppress(InvalidParams):
        assert read_form(FORM, content_type, body)["files"] == []


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("note.txt", "note.txt"),
        ("../../etc/passwd", "passwd"),
        ("C:\\notes\\a.txt", "a.txt"),
        ("%22quoted%22.txt", '"quoted".txt'),
        ('\\"quoted\\".txt', '"quoted".txt'),
        ("naïve.txt", "naïve.txt"),
    ],
)
def test_the_name_of_a_file_has_no_directories(written: str, read: str) -> None:
    [file] = multipart(part("files", b"x", f'; filename="{written}"'))["files"]

    assert file.filename == read


def test_a_file_field_where_nothing_was_chosen_brings_no_file() -> None:
    assert multipart(part("files", b"", '; filename=""'))["files"] == []
    assert multipart(part("files", b""))["files"] == []


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([part("a", b"1"), part("a", b"2")], "a: got it twice"),
        ([part("a", b"1", '; filename="f"')], "a: got a file, expected a text"),
        ([part("files", b"text")], "files: got a text, expected a file"),
        ([part("a", b"\xff")], "a: got bytes that are no UTF-8"),
        ([part("a", b"eA==", "", "\r\nContent-Transfer-Encoding: base64")], "expected bytes as they are"),
        ([f"--{BOUNDARY}\r\nContent-Disposition: form-data\r\n\r\nx\r\n".encode()], "without a name"),
        ([f"--{BOUNDARY}\r\n\r\nx\r\n".encode()], "without a head"),
        ([f"--{BOUNDARY}\r\nx\r\n".encode()], "without a head"),
        ([part("a", b"1") * 30], "at most 20 parts"),
    ],
)
def test_a_form_that_cannot_be_read_is_refused_by_its_fault(parts: list[bytes], told: str) -> None:
    with pytest.raises(InvalidParams, match=told):
        multipart(*parts)


def test_a_form_that_does_not_end_is_refused() -> None:
    with pytest.raises(InvalidParams, match="no end"):
        read_form(FORM, f"{MULTIPART}; boundary={BOUNDARY}", part("a", b"1"))


def test_more_values_than_there_may_be_are_refused() -> None:
    with pytest.raises(InvalidParams, match="cannot be read"):
        read_form(FORM, URLENCODED, b"&".join(b"a%d=1" % number for number in range(30)))
