"""Namespaces of conversations."""

from urllib.parse import urlencode

import pytest

from tests.server.compat.agentkit.conversing import HELLO, ids, keep, post
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import JSON, RestClient

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


async def names(api: RestClient, who: str = "ada") -> dict[str, int]:
    listed = (await api.get("/namespaces", who)).json()
    assert listed["total"] == len(listed["namespaces"])
    return {one["name"]: one["conversation_count"] for one in listed["namespaces"]}


async def rename(api: RestClient, name: str, new_name: str, who: str = "ada") -> HttpResponse:
    return await send(api, "PUT", f"/namespaces/{name}/rename", who, new_name=new_name)


async def make(api: RestClient, name: str, who: str = "ada") -> HttpResponse:
    return await send(api, "POST", "/namespaces", who, name=name)


async def send(api: RestClient, method: str, path: str, who: str, **form: str) -> HttpResponse:
    return await api.request(method, path, who, FORM, urlencode(form).encode())


async def test_the_default_namespace_is_always_there(api: RestClient) -> None:
    answer = (await api.get("/namespaces")).json()

    row = {"name": "default", "document_count": 0, "conversation_count": 0, "is_default": True}
    assert answer == {"namespaces": [row], "total": 1}


async def test_namespaces_are_made_by_name_or_by_a_conversation_in_them(api: RestClient) -> None:
    made = await make(api, "my-new-project")
    await keep(api, *HELLO, namespace="work")

    assert made.json() == {
        "status": "success",
        "message": "Namespace 'my-new-project' created successfully",
        "namespace": "my-new-project",
    }
    assert await names(api) == {"default": 0, "my-new-project": 0, "work": 1}
    assert await names(api, "ben") == {"default": 0}


async def test_a_name_may_be_sent_as_json_like_everything_else(api: RestClient) -> None:
    made = await post(api, "/namespaces", {"name": "old"})
    renamed = await api.request("PUT", "/namespaces/old/rename", "ada", JSON, b'{"new_name": "new"}')
    wrong = await post(api, "/namespaces", {"name": 7})
    foreign = await api.request("PUT", "/namespaces/new/rename", "ben", JSON, b'{"new_name": "mine"}')
    other = await api.request("POST", "/namespaces", "ada", {"Content-Type": "text/plain"}, b"name=x")

    assert [answer.status for answer in (made, renamed, wrong, foreign, other)] == [200, 200, 422, 404, 415]
    assert wrong.json()["detail"][0]["loc"] == ["body", "name"]
    assert "application/x-www-form-urlencoded or application/json" in other.json()["detail"]
    assert await names(api) == {"default": 0, "new": 0}
    assert await names(api, "ben") == {"default": 0}


async def test_a_renamed_namespace_keeps_its_conversations(api: RestClient) -> None:
    kept = await keep(api, *HELLO, namespace="old")

    answer = await rename(api, "old", "new")

    assert (answer.status, answer.json()["namespace"]) == (200, "new")
    assert await ids(api, "namespace=new") == [kept]
    assert await names(api) == {"default": 0, "new": 1}


async def test_the_conversations_of_a_deleted_namespace_move_to_the_default_one(api: RestClient) -> None:
    kept = await keep(api, *HELLO, namespace="old")

    answer = (await api.request("DELETE", "/namespaces/old", "ada")).json()

    assert (answer["status"], answer["message"], answer["moved"]) == (
        "success",
        "Namespace 'old' deleted successfully",
        1,
    )
    assert await ids(api, "namespace=default") == [kept]
    assert await names(api) == {"default": 1}


@pytest.mark.parametrize(
    ("status", "code", "method", "path", "body"),
    [
        (409, "CONFLICT", "POST", "/namespaces", {"name": "work"}),
        (409, "CONFLICT", "POST", "/namespaces", {"name": "default"}),
        (409, "CONFLICT", "PUT", "/namespaces/work/rename", {"new_name": "home"}),
        (400, "VALIDATION_ERROR", "POST", "/namespaces", {"name": "my project"}),
        (400, "VALIDATION_ERROR", "POST", "/namespaces", {"name": ""}),
        (400, "VALIDATION_ERROR", "POST", "/namespaces", {"name": "x" * 65}),
        (400, "VALIDATION_ERROR", "PUT", "/namespaces/work/rename", {"new_name": "a\n"}),
        (400, "VALIDATION_ERROR", "PUT", "/namespaces/default/rename", {"new_name": "other"}),
        (400, "VALIDATION_ERROR", "DELETE", "/namespaces/default", {}),
        (422, "VALIDATION_ERROR", "POST", "/namespaces", {}),
        (404, "NOT_FOUND", "DELETE", "/namespaces/none", {}),
        (404, "NOT_FOUND", "PUT", "/namespaces/none/rename", {"new_name": "other"}),
    ],
)
async def test_what_cannot_be_done_to_a_namespace_is_refused(
    api: RestClient, status: int, code: str, method: str, path: str, body: dict[str, str]
) -> None:
    for name in ("work", "home"):
        await make(api, name)

    answer = await send(api, method, path, "ada", **body)

    assert (answer.status, answer.json()["error"]["code"]) == (status, code)
    assert await names(api) == {"default": 0, "home": 0, "work": 0}


async def test_namespaces_of_another_are_neither_renamed_nor_deleted_nor_in_the_way(api: RestClient) -> None:
    await make(api, "work")

    answers = [await rename(api, "work", "mine", "ben"), await api.request("DELETE", "/namespaces/work", "ben")]

    assert [answer.status for answer in answers] == [404, 404]
    assert (await make(api, "work", "ben")).status == 200
    assert await names(api) == {"default": 0, "work": 0}
