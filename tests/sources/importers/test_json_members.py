"""Reading a long list inside a JSON object, whatever comes before it and however the file is read."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sources.importers.engine.json_stream import element_object, read_member_list
from tests.sources.importers.chat_files import LIMITS
from tests.sources.importers.test_json_stream import OBJECTS, VALUES, SlowFile

HEADERS = st.dictionaries(st.text('ab"\\{}[]:', max_size=5), VALUES | st.text('ab"\\ {}[]:'), max_size=4)


@given(HEADERS, OBJECTS, st.integers(1, 50))
def test_list_and_header_are_unchanged_whatever_the_block_size(
    header: dict[str, Any], objects: list[Any], read_max: int
) -> None:
    data = msgspec.json.encode({**header, "messages": objects})
    members = read_member_list(SlowFile(data, read_max), ("messages",), LIMITS)
    assert members is not None
    assert members.header == {**header, "messages": []}
    assert [element_object(element, LIMITS) for element in members.elements] == objects


@given(HEADERS, st.integers(1, 50))
def test_object_without_the_list_has_none(header: dict[str, Any], read_max: int) -> None:
    assert read_member_list(SlowFile(msgspec.json.encode(header), read_max), ("messages",), LIMITS) is None
