"""Completion of prompt and template arguments."""

from typing import Any

import pytest

from config.errors import InvalidParams
from tests.cases import each_case
from tests.server.protocol.dispatcher_fixture import DispatcherClient, make_dispatcher, make_principal
from tests.server.sample_catalog import SampleCatalog


@pytest.fixture
def ada(samples: SampleCatalog) -> DispatcherClient:
    return DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada"))


@each_case(
    ("ref", "argument", "value", "expected"),
    [
        ({"type": "ref/prompt", "name": "greet"}, "tone", "w", ["warm", "wry"]),
        ({"type": "ref/prompt", "name": "greet"}, "name", "x", []),
        ({"type": "ref/prompt", "name": "greet"}, "unknown", "x", []),
        ({"type": "ref/resource", "uri": "test://items/{id}"}, "id", "14", ["14", *map(str, range(140, 150))]),
    ],
)
async def test_completion_returns_matching_values(
    ada: DispatcherClient, ref: Any, argument: str, value: str, expected: Any
) -> None:
    params = {"ref": ref, "argument": {"name": argument, "value": value}}

    result = await ada.legacy("completion/complete", params)

    assert result["completion"] == {"values": expected, "total": len(expected), "hasMore": False}


async def test_completion_returns_at_most_100_values_and_reports_more(ada: DispatcherClient) -> None:
    ref = {"type": "ref/resource", "uri": "test://items/{id}"}

    result = await ada.legacy("completion/complete", {"ref": ref, "argument": {"name": "id", "value": ""}})

    assert len(result["completion"]["values"]) == 100
    assert (result["completion"]["total"], result["completion"]["hasMore"]) == (150, True)


@each_case(
    "params",
    [
        {},
        {"ref": {"type": "ref/prompt", "name": "greet"}},
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "tone"}},
        {"ref": {"type": "ref/prompt", "name": "admin_prompt "}, "argument": {"name": "tone", "value": ""}},
        {"ref": {"type": "ref/resource", "uri": "test://none"}, "argument": {"name": "tone", "value": ""}},
        {"ref": {"type": "ref/tool", "name": "echo"}, "argument": {"name": "tone", "value": ""}},
        {"ref": None, "argument": {"name": "tone", "value": ""}},
    ],
)
async def test_an_invalid_completion_request_is_rejected(ada: DispatcherClient, params: Any) -> None:
    with pytest.raises(InvalidParams):
        await ada.legacy("completion/complete", params)
