"""The catalog: how things are listed, found and changed."""

import urllib.parse
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.principal import READ
from config.paths import new_user_id
from server.protocol.catalog import Catalog, Resource, ResourceTemplate, Tool
from server.protocol.changes import Change
from tests.server.sample_catalog import Nothing, SampleCatalog


async def _run(call: Any, given: Any) -> None:
    return None


async def _read(call: Any, uri: str, variables: Any) -> list[Any]:
    return []


def _tool(name: str, description: str = "Does nothing.") -> Tool:
    return Tool(name=name, title="Nothing", description=description, input=Nothing, handler=_run)


def _template(pattern: str) -> ResourceTemplate:
    return ResourceTemplate(uri_template=pattern, name="t", description="d", read=_read)


def test_every_tool_is_listed_with_title_schema_and_all_four_hints(samples: SampleCatalog) -> None:
    for tool in samples.catalog.tools.values():
        listed = tool.as_listed()

        assert listed["inputSchema"]["type"] == "object"
        assert listed["title"]
        assert set(listed["annotations"]) == {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}


@pytest.mark.parametrize("name", ["", "Search", "knowledge.search", "1st", "a b", "a\n", "x" * 47, "naïve"])
def test_a_tool_name_that_some_client_refuses_cannot_be_registered(name: str) -> None:
    with pytest.raises(AssertionError):
        _tool(name)


def test_a_description_that_costs_too_much_context_cannot_be_registered() -> None:
    with pytest.raises(AssertionError):
        _tool("fine", "x" * 1001)


def test_a_tool_is_found_by_its_name_and_by_its_dotted_name() -> None:
    catalog = Catalog()
    catalog.add_tool(_tool("knowledge_search"))

    assert catalog.find_tool("knowledge_search") is catalog.find_tool("knowledge.search")
    assert catalog.find_tool("knowledge_search") is not None
    assert catalog.find_tool("knowledge-search") is None


def test_a_removed_tool_is_gone_with_all_that_was_derived_from_it(samples: SampleCatalog) -> None:
    assert samples.catalog.mirrored("locate")

    samples.catalog.remove_tool("locate")

    assert samples.catalog.find_tool("locate") is None
    assert samples.catalog.mirrored("locate") == ()


@pytest.mark.parametrize("name", [None, 7, [], {}, "unknown"])
def test_no_tool_has_no_mirrored_parameters(samples: SampleCatalog, name: Any) -> None:
    assert samples.catalog.mirrored(name) == ()


async def test_each_change_of_a_list_is_published_and_raises_the_version() -> None:
    catalog = Catalog()
    kinds = frozenset(("tools", "resources", "prompts"))

    with catalog.changes.listen(new_user_id(), kinds, frozenset()) as listener:
        catalog.add_tool(_tool("first"))
        catalog.add_template(_template("test://{id}"))

        assert [await listener.next(0), await listener.next(0)] == [Change("tools"), Change("resources")]
    assert catalog.version == 2


def test_a_fixed_uri_is_found_before_a_template_that_also_fits() -> None:
    catalog = Catalog()
    fixed = Resource(uri="test://items/all", name="all", description="d", read=_read, scope=READ)
    catalog.add_template(_template("test://items/{id}"))
    catalog.add_resource(fixed)

    assert catalog.find_resource("test://items/all") == (fixed, {})
    found = catalog.find_resource("test://items/7")
    assert found is not None
    assert found[1] == {"id": "7"}


@given(st.text(min_size=1))
def test_a_template_gives_back_the_text_that_was_encoded_into_the_uri(text: str) -> None:
    uri = f"test://items/{urllib.parse.quote(text, safe='')}/part"

    assert _template("test://items/{id}/part").match(uri) == {"id": text}


@pytest.mark.parametrize(
    "uri",
    ["test://items/", "test://items/a/b", "test://items/a?b", "test://items/a#b", "xtest://items/a", "test://Items/a"],
)
def test_a_template_variable_is_one_segment_and_nothing_else(uri: str) -> None:
    assert _template("test://items/{id}").match(uri) is None


def test_characters_of_a_template_mean_themselves() -> None:
    assert _template("test://a.b/{id}").match("test://aXb/1") is None
