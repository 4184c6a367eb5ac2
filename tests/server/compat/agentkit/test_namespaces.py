"""Namespaces of conversations."""

from urllib.parse import urlencode

import pytest

from tests.server.compat.agentkit.conversing import HELLO, ids, keep, post
from tests.server.rest.scene import JSON, Desk
from tests.server.wire import Answer

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


async def names(desk: Desk, who: str = "ada") -> dict[str, int]:
    listed = (await desk.get("/namespaces", who)).json()
    assert listed["total"] == len(listed["namespaces"])
    return {one["name"]: one["conversation_count"] for one in listed["namespaces"]}


async def rename(desk: Desk, name: str, new_name: str, who: str = "ada") -> Answer:
    return await send(desk, "PUT", f"/namespaces/{name}/rename", who, new_name=new_name)


async def make(desk: Desk, name: str, who: str = "ada") -> Answer:
    return await send(desk, "POST", "/namespaces", who, name=name)


async def send(desk: Desk, method: str, path: str, who: str, **form: str) -> Answer:
    return await desk.ask(method, path, who, FORM, urlencode(form).encode())


async def test_the_default_namespace_is_always_there(desk: Desk) -> None:
    answer = (await desk.get("/namespaces")).json()

    row = {"name": "default", "document_count": 0, "conversation_count": 0, "is_default": True}
    assert answer == {"namespaces": [row], "total": 1}


async def test_namespaces_are_made_by_name_or_by_a_conversation_in_them(desk: Desk) -> None:
    made = await make(desk, "my-new-project")
    await keep(desk, *HELLO, namespace="work")

    assert made.json() == {
        "status": "success",
        "message": "Namespace 'my-new-project' created successfully",
        "namespace": "my-new-project",
    }
    assert await names(desk) == {"default": 0, "my-new-project": 0, "work": 1}
    assert await names(desk, "ben") == {"default": 0}


async def test_a_name_may_be_sent_as_json_like_everything_else(desk: Desk) -> None:
    made = await post(desk, "/namespaces", {"name": "old"})
    renamed = await desk.ask("PUT", "/namespaces/old/rename", "ada", JSON, b'{"new_name": "new"}')
    wrong = await post(desk, "/namespaces", {"name": 7})
    foreign = await desk.ask("PUT", "/namespaces/new/rename", "ben", JSON, b'{"new_name": "mine"}')
    other = await desk.ask("POST", "/namespaces", "ada", {"Content-Type": "text/plain"}, b"name=x")

    assert [answer.status for answer in (made, renamed, wrong, foreign, other)] == [200, 200, 422, 404, 415]
    assert wrong.json()["detail"][0]["loc"] == ["body", "name"]
    assert "application/x-www-form-urlencoded or application/json" in other.json()["detail"]
    assert await names(desk) == {"default": 0, "new": 0}
    assert await names(desk, "ben") == {"default": 0}


async def test_a_renamed_namespace_keeps_its_conversations(desk: Desk) -> None:
    kept = await keep(desk, *HELLO, namespace="old")

    answer = await rename(desk, "old", "new")

    assert (answer.status, answer.json()["namespace"]) == (200, "new")
    assert await ids(desk, "namespace=new") == [kept]
    assert await names(desk) == {"default": 0, "new": 1}


async def test_the_conversations_of_a_deleted_namespace_move_to_the_default_one(desk: Desk) -> None:
    kept = await keep(desk, *HELLO, namespace="old")

    answer = (await desk.ask("DELETE", "/namespaces/old", "ada")).json()

    assert (answer["status"], answer["message"], answer["moved"]) == (
        "success",
        "Namespace 'old' deleted successfully",
        1,
    )
    assert await ids(desk, "namespace=default") == [kept]
    assert await names(desk) == {"default": 1}


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
    desk: Desk, status: int, code: str, method: str, path: str, body: dict[str, str]
) -> None:
    for name in ("work", "home"):
        await make(desk, name)

    answer = await send(desk, method, path, "ada", **body)

    assert (answer.status, answer.json()["error"]["code"]) == (status, code)
    assert await names(desk) == {"default": 0, "home": 0, "work": 0}


async def test_namespaces_of_another_are_neither_renamed_nor_deleted_nor_in_the_way(desk: Desk) -> None:
    await make(desk, "work")

    answers = [await rename(desk, "work", "mine", "ben"), await desk.ask("DELETE", "/namespaces/work", "ben")]

    assert [answer.status for answer in answers] == [404, 404]
    assert (await make(desk, "work", "ben")).status == 200
    assert await names(desk) == {"default": 0, "work": 0}
