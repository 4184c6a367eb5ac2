"""Long JSON files are taken apart into their objects, whatever they hold and wherever they are cut."""

import io
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.importers.engine.json_stream import decode, elements, require_depth
from tests.sources.importers.chat_reading import LIMITS, nested

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a"\\{}[]', max_size=4), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.lists(st.dictionaries(st.text('ab"\\{}[],', max_size=5), VALUES, max_size=4), max_size=6)


class Dripping(io.BytesIO):
    """A file that gives a few bytes at a time, as a slow archive does."""

    def __init__(self, data: bytes, drop: int) -> None:
        super().__init__(data)
        self._drop = drop

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self._drop if size is None or size < 0 else min(size, self._drop))


def split(data: bytes, **limits: int) -> list[bytes | str]:
    found = elements(io.BytesIO(data), replace(LIMITS, **limits))
    return [element.problem or element.data for element in found]


@given(OBJECTS, st.integers(1, 50), st.sampled_from([None, 2]))
def test_objects_come_out_as_they_went_in_wherever_the_file_is_cut(objects: list[Any], drop: int, indent: Any) -> None:
    data = msgspec.json.encode(objects)
    written = msgspec.json.format(data, indent=indent) if indent else data
    found = list(elements(Dripping(written, drop), LIMITS))
    assert [msgspec.json.decode(element.data) for element in found] == objects
    assert [element.number for element in found] == list(range(1, len(objects) + 1))


@given(st.binary(max_size=200), st.integers(1, 20))
def test_bytes_that_are_no_json_are_refused_or_told(data: bytes, drop: int) -> None:
    try:
        found = list(elements(Dripping(data, drop), LIMITS))
    except InvalidParams:
        assert data.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n")[:1] not in (b"[", b"{")
        return
    assert len(found) <= len(data)


def test_a_byte_order_mark_and_many_blanks_may_come_first() -> None:
    assert split(b"\xef\xbb\xbf" + b" \n" * 100_000 + b'[{"a": 1}]\n') == [b'{"a": 1}']


def test_a_single_object_and_objects_on_lines_are_elements_too() -> None:
    assert split(b'{"a": "}"}') == [b'{"a": "}"}']
    assert split(b'{"a": 1}\n{"b": 2}\n') == [b'{"a": 1}', b'{"b": 2}']


def test_what_is_no_object_is_told_once_and_the_rest_goes_on() -> None:
    found = split(b'[1, "two, three", {"a": 1}, null, {"b": 2}]')
    assert found == [
        "got something else, expected an object",
        b'{"a": 1}',
        "got something else, expected an object",
        b'{"b": 2}',
    ]


def test_a_file_that_was_cut_gives_what_came_before() -> None:
    ended = "got the end of the file in the middle, expected the rest of it"
    assert split(b'[{"a": 1}, {"b": "un') == [b'{"a": 1}', ended]
    assert split(b'[{"a": 1},') == [b'{"a": 1}', ended]


def test_more_after_the_list_is_told() -> None:
    assert split(b'[{"a": 1}] [{"b": 2}]') == [b'{"a": 1}', "got more after the end of the list, expected nothing"]
    assert split(b'[{"a": 1}]' + b" " * 200_000 + b"x")[1:] == ["got more after the end of the list, expected nothing"]


def test_an_object_that_is_too_large_is_told_and_the_next_one_is_read() -> None:
    data = b'[{"a": "' + b"x" * 300_000 + b'"}, {"b": 2}]'
    assert split(data, line_max_bytes=1_000) == ["got 300009 bytes, expected at most 1000", b'{"b": 2}']


def test_an_object_that_is_nested_too_deep_is_told_and_the_next_one_is_read() -> None:
    data = b'[{"a": ' + nested(100_000) + b'}, {"b": [[2]]}]'
    assert split(data, depth_max=3) == ["got values nested deeper than 3, expected fewer", b'{"b": [[2]]}']


@given(st.binary(max_size=60).map(lambda data: bytes(b'{}[]"x,'[byte % 7] for byte in data)), st.integers(1, 9))
def test_objects_are_cut_at_the_same_places_whatever_the_blocks(data: bytes, drop: int) -> None:
    """Also where braces do not match."""
    whole = list(elements(io.BytesIO(b"[{" + data), LIMITS))
    assert [one.data for one in elements(Dripping(b"[{" + data, drop), LIMITS) if one.data] == [
        one.data for one in whole if one.data
    ]


@pytest.mark.parametrize(
    "element", [nested(5), b'{"a": ' + nested(4) + b"}", b'{"a": "' + b"x" * 20_000 + b'", "b": [[[[]]]]}']
)
def test_depth_counts_from_the_object_wherever_it_is_deep(element: bytes) -> None:
    for before in (b"", b"{},"):
        assert split(b"[" + before + element + b"]", depth_max=5)[-1] == element
        assert "deeper than 4" in str(split(b"[" + before + element + b"]", depth_max=4)[-1])


def test_depth_of_a_line_is_limited() -> None:
    require_depth(b'{"[[[": [[1]]}', replace(LIMITS, depth_max=3))
    with pytest.raises(InvalidParams, match="nested deeper than 2"):
        require_depth(b'{"a": [[1]]}', replace(LIMITS, depth_max=2))


class Shape(Struct):
    title: str = ""
    rest: Raw = Raw(b"null")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (rb"a \ud83d\ude00 b", "a \U0001f600 b"),
        (rb"half \ud83d", "half \0"),
        (rb"half \uDE00 more", "half \0 more"),
        (rb"\ud83d\ud83d\ude00", "\0\U0001f600"),
        (rb"a backslash \\ud83d \ud83d", "a backslash \\ud83d \0"),
    ],
)
def test_half_of_a_surrogate_pair_is_read_as_nul(written: bytes, read: str) -> None:
    assert decode(b'{"title": "' + written + b'"}', Shape).title == read


def test_half_of_a_surrogate_pair_elsewhere_harms_nobody() -> None:
    found = decode(rb'{"rest": {"x": "\udc00"}, "title": "fine"}', Shape)
    assert (found.title, bytes(found.rest)) == ("fine", rb'{"x": "\u0000"}')


@pytest.mark.parametrize("data", [b"{", b'{"title": "\xff"}', b"", b'{"title": \x00}', b'{"title": "a\nb"}'])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidParams, match="got something that is not JSON"):
        decode(data, Shape)


def test_another_shape_is_refused_with_the_field() -> None:
    with pytest.raises(InvalidParams, match=r"Expected `str`, got `int` - at `\$.title`"):
        decode(b'{"title": 1}', Shape)
