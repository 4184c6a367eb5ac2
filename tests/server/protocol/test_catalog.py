"""The catalog: listing, finding and changing its entries."""

import urllib.parse
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.context import READ
from server.protocol.call import DEFAULT_PROFILE
from server.protocol.catalog import Catalog, CatalogAccess, Change, Profiles, Resource, ResourceTemplate, Tool
from tests.cases import each_case
from tests.server.protocol.dispatcher_fixture import make_principal
from tests.server.sample_catalog import NoInput, SampleCatalog


async def _do_nothing(call: Any, args: Any) -> None:
    return None


async def _read(call: Any, uri: str, variables: Any) -> list[Any]:
    return []


def _tool(name: str, description: str = "Does nothing.") -> Tool:
    return Tool(name=name, title="NoInput", description=description, input=NoInput, handler=_do_nothing)


def _template(pattern: str) -> ResourceTemplate:
    return ResourceTemplate(uri_template=pattern, name="t", description="d", reader=_read)


def test_every_tool_is_listed_with_title_schema_and_all_annotations(samples: SampleCatalog) -> None:
    for tool in samples.catalog.tools.values():
        listed = tool.as_listed()

        assert listed["inputSchema"]["type"] == "object"
        assert listed["title"]
        assert set(listed["annotations"]) == {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}


@each_case("name", ["", "Search", "knowledge.search", "1st", "a b", "a\n", "x" * 47, "naïve"])
def test_a_tool_name_that_some_clients_reject_cannot_be_declared(name: str) -> None:
    with pytest.raises(AssertionError):
        _tool(name)


def test_a_too_long_description_cannot_be_declared() -> None:
    with pytest.raises(AssertionError):
        _tool("fine", "x" * 1001)


def test_a_tool_is_found_by_its_name_and_by_its_dotted_name() -> None:
    catalog = Catalog()
    catalog.add_tool(_tool("knowledge_search"))

    access = CatalogAccess(catalog, Profiles())
    names = ("knowledge_search", "knowledge.search", "knowledge-search", 7)
    found = [access.find_tool(DEFAULT_PROFILE, name) for name in names]
    assert found == [catalog.tools["knowledge_search"], catalog.tools["knowledge_search"], None, None]


def test_a_replaced_tool_has_the_mirrored_parameters_of_its_replacement(samples: SampleCatalog) -> None:
    assert samples.catalog.mirrored_parameters["locate"]

    samples.catalog.add_tool(_tool("locate"))

    assert "locate" not in samples.catalog.mirrored_parameters


async def test_each_change_is_published_and_increases_the_version() -> None:
    catalog = Catalog()
    kinds = frozenset(("tools", "resources", "prompts"))

    with catalog.changes.listen(make_principal("ada"), kinds, frozenset()) as listener:
        catalog.add_tool(_tool("first"))
        catalog.add_template(_template("test://{id}"))

        assert [await listener.next(0), await listener.next(0)] == [Change("tools"), Change("resources")]
    assert catalog.version == 2


def test_a_fixed_uri_is_found_before_a_matching_template() -> None:
    catalog = Catalog()
    fixed = Resource(uri="test://items/all", name="all", description="d", reader=_read, scope=READ)
    catalog.add_template(_template("test://items/{id}"))
    catalog.add_resource(fixed)

    assert catalog.find_resource("test://items/all") == (fixed, {})
    match = catalog.find_resource("test://items/7")
    assert match is not None
    assert match[1] == {"id": "7"}


@given(st.text(min_size=1))
def test_a_template_decodes_the_variable_of_a_uri(text: str) -> None:
    uri = f"test://items/{urllib.parse.quote(text, safe='')}/part"

    assert _template("test://items/{id}/part").match(uri) == {"id": text}


@each_case(
    "uri",
    ["test://items/", "test://items/a/b", "test://items/a?b", "test://items/a#b", "xtest://items/a", "test://Items/a"],
)
def test_a_template_variable_matches_exactly_one_segment(uri: str) -> None:
    assert _template("test://items/{id}").match(uri) is None


def test_the_text_of_a_template_is_matched_literally() -> None:
    assert _template("test://a.b/{id}").match("test://aXb/1") is None
