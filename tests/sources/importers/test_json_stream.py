"""Splitting long JSON files into objects, whatever they contain and however they are read."""

import io
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.importers.engine.json_stream import decode_object, iter_objects, require_depth
from tests.cases import each_case
from tests.sources.importers.chat_files import LIMITS, nested

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a"\\{}[]', max_size=4), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.lists(st.dictionaries(st.text('ab"\\{}[],', max_size=5), VALUES, max_size=4), max_size=6)


class SlowFile(io.BytesIO):
    """A file that returns a few bytes at a time, as an archive does."""

    def __init__(self, data: bytes, read_max: int) -> None:
        super().__init__(data)
        self._read_max = read_max

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self._read_max if size is None or size < 0 else min(size, self._read_max))


def split(data: bytes, **limits: int) -> list[bytes | str]:
    elements = iter_objects(io.BytesIO(data), replace(LIMITS, **limits))
    return [element.problem or element.data for element in elements]


@given(OBJECTS, st.integers(1, 50), st.sampled_from([None, 2]))
def test_objects_are_unchanged_whatever_the_block_size(objects: list[Any], read_max: int, indent: Any) -> None:
    data = msgspec.json.encode(objects)
    formatted = msgspec.json.format(data, indent=indent) if indent else data
    elements = list(iter_objects(SlowFile(formatted, read_max), LIMITS))
    assert [msgspec.json.decode(element.data) for element in elements] == objects
    assert [element.number for element in elements] == list(range(1, len(objects) + 1))


@given(st.binary(max_size=200), st.integers(1, 20))
def test_bytes_that_are_not_json_are_rejected_or_reported(data: bytes, read_max: int) -> None:
    try:
        elements = list(iter_objects(SlowFile(data, read_max), LIMITS))
    except InvalidParams:
        assert data.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n")[:1] not in (b"[", b"{")
        return
    assert len(elements) <= len(data)


def test_byte_order_mark_and_white_space_may_come_first() -> None:
    assert split(b"\xef\xbb\xbf" + b" \n" * 100_000 + b'[{"a": 1}]\n') == [b'{"a": 1}']


def test_single_object_and_objects_on_lines_are_read() -> None:
    assert split(b'{"a": "}"}') == [b'{"a": "}"}']
    assert split(b'{"a": 1}\n{"b": 2}\n') == [b'{"a": 1}', b'{"b": 2}']


def test_values_between_objects_are_reported_once() -> None:
    elements = split(b'[1, "two, three", {"a": 1}, null, {"b": 2}]')
    assert elements == ["expected an object", b'{"a": 1}', "expected an object", b'{"b": 2}']


def test_objects_before_a_truncation_are_read() -> None:
    assert split(b'[{"a": 1}, {"b": "un') == [b'{"a": 1}', "file is truncated"]
    assert split(b'[{"a": 1},') == [b'{"a": 1}', "file is truncated"]


def test_data_after_the_list_is_reported() -> None:
    assert split(b'[{"a": 1}] [{"b": 2}]') == [b'{"a": 1}', "unexpected data after the end of the list"]
    assert split(b'[{"a": 1}]' + b" " * 200_000 + b"x")[1:] == ["unexpected data after the end of the list"]


def test_oversized_object_is_reported_and_the_next_one_is_read() -> None:
    data = b'[{"a": "' + b"x" * 300_000 + b'"}, {"b": 2}]'
    assert split(data, line_max_bytes=1_000) == ["expected at most 1000 bytes, got 300009", b'{"b": 2}']


def test_deeply_nested_object_is_reported_and_the_next_one_is_read() -> None:
    data = b'[{"a": ' + nested(100_000) + b'}, {"b": [[2]]}]'
    assert split(data, depth_max=3) == ["nested more than 3 levels deep", b'{"b": [[2]]}']


@given(st.binary(max_size=60).map(lambda data: bytes(b'{}[]"x,'[byte % 7] for byte in data)), st.integers(1, 9))
def test_boundaries_do_not_depend_on_the_block_size(data: bytes, read_max: int) -> None:
    """Holds even if braces do not match."""
    whole = list(iter_objects(io.BytesIO(b"[{" + data), LIMITS))
    slow = list(iter_objects(SlowFile(b"[{" + data, read_max), LIMITS))
    assert [element.data for element in slow if element.data] == [element.data for element in whole if element.data]


@each_case("element", [nested(5), b'{"a": ' + nested(4) + b"}", b'{"a": "' + b"x" * 20_000 + b'", "b": [[[[]]]]}'])
def test_depth_is_counted_from_the_object(element: bytes) -> None:
    for before in (b"", b"{},"):
        assert split(b"[" + before + element + b"]", depth_max=5)[-1] == element
        assert "more than 4 levels" in str(split(b"[" + before + element + b"]", depth_max=4)[-1])


def test_depth_of_a_line_is_limited() -> None:
    require_depth(b'{"[[[": [[1]]}', replace(LIMITS, depth_max=3))
    with pytest.raises(InvalidParams, match="nested more than 2 levels deep"):
        require_depth(b'{"a": [[1]]}', replace(LIMITS, depth_max=2))


class Shape(Struct):
    title: str = ""
    rest: Raw = Raw(b"null")


@each_case(
    ("json_text", "text"),
    [
        (rb"a \ud83d\ude00 b", "a \U0001f600 b"),
        (rb"half \ud83d", "half \0"),
        (rb"half \uDE00 more", "half \0 more"),
        (rb"\ud83d\ud83d\ude00", "\0\U0001f600"),
        (rb"a backslash \\ud83d \ud83d", "a backslash \\ud83d \0"),
    ],
)
def test_unpaired_surrogate_is_decoded_as_nul(json_text: bytes, text: str) -> None:
    assert decode_object(b'{"title": "' + json_text + b'"}', Shape).title == text


def test_unpaired_surrogate_does_not_affect_other_fields() -> None:
    shape = decode_object(rb'{"rest": {"x": "\udc00"}, "title": "fine"}', Shape)
    assert (shape.title, bytes(shape.rest)) == ("fine", rb'{"x": "\u0000"}')


@each_case("data", [b"{", b'{"title": "\xff"}', b"", b'{"title": \x00}', b'{"title": "a\nb"}'])
def test_invalid_json_is_rejected(data: bytes) -> None:
    with pytest.raises(InvalidParams, match="not valid JSON"):
        decode_object(data, Shape)


def test_unexpected_type_is_rejected_with_the_field() -> None:
    with pytest.raises(InvalidParams, match=r"Expected `str`, got `int` - at `\$.title`"):
        decode_object(b'{"title": 1}', Shape)
