"""Namespaces of conversations."""

from urllib.parse import urlencode

from tests.cases import each_case
from tests.server.compat.agentkit.conversations_api import HELLO, conversation_ids, create_conversation, post
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import JSON, RestClient

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


async def conversation_counts(api: RestClient, who: str = "ada") -> dict[str, int]:
    response = (await api.get("/namespaces", who)).json()
    assert response["total"] == len(response["namespaces"])
    return {row["name"]: row["conversation_count"] for row in response["namespaces"]}


async def rename(api: RestClient, name: str, new_name: str, who: str = "ada") -> HttpResponse:
    return await send(api, "PUT", f"/namespaces/{name}/rename", who, new_name=new_name)


async def create_namespace(api: RestClient, name: str, who: str = "ada") -> HttpResponse:
    return await send(api, "POST", "/namespaces", who, name=name)


async def send(api: RestClient, method: str, path: str, who: str, **form: str) -> HttpResponse:
    return await api.request(method, path, who, FORM, urlencode(form).encode())


async def test_default_namespace_always_exists(api: RestClient) -> None:
    response = (await api.get("/namespaces")).json()

    row = {"name": "default", "document_count": 0, "conversation_count": 0, "is_default": True}
    assert response == {"namespaces": [row], "total": 1}


async def test_namespace_is_created_by_name_or_by_its_first_conversation(api: RestClient) -> None:
    created = await create_namespace(api, "my-new-project")
    await create_conversation(api, *HELLO, namespace="work")

    assert created.json() == {
        "status": "success",
        "message": "Namespace 'my-new-project' created successfully",
        "namespace": "my-new-project",
    }
    assert await conversation_counts(api) == {"default": 0, "my-new-project": 0, "work": 1}
    assert await conversation_counts(api, "ben") == {"default": 0}


async def test_name_can_be_sent_as_json(api: RestClient) -> None:
    created = await post(api, "/namespaces", {"name": "old"})
    renamed = await api.request("PUT", "/namespaces/old/rename", "ada", JSON, b'{"new_name": "new"}')
    wrong = await post(api, "/namespaces", {"name": 7})
    foreign = await api.request("PUT", "/namespaces/new/rename", "ben", JSON, b'{"new_name": "mine"}')
    other = await api.request("POST", "/namespaces", "ada", {"Content-Type": "text/plain"}, b"name=x")

    assert [response.status for response in (created, renamed, wrong, foreign, other)] == [200, 200, 422, 404, 415]
    assert wrong.json()["detail"][0]["loc"] == ["body", "name"]
    assert "application/x-www-form-urlencoded or application/json" in other.json()["detail"]
    assert await conversation_counts(api) == {"default": 0, "new": 0}
    assert await conversation_counts(api, "ben") == {"default": 0}


async def test_renamed_namespace_keeps_its_conversations(api: RestClient) -> None:
    conversation = await create_conversation(api, *HELLO, namespace="old")

    response = await rename(api, "old", "new")

    assert (response.status, response.json()["namespace"]) == (200, "new")
    assert await conversation_ids(api, "namespace=new") == [conversation]
    assert await conversation_counts(api) == {"default": 0, "new": 1}


async def test_conversations_of_a_deleted_namespace_move_to_the_default(api: RestClient) -> None:
    conversation = await create_conversation(api, *HELLO, namespace="old")

    response = (await api.request("DELETE", "/namespaces/old", "ada")).json()

    assert (response["status"], response["message"], response["moved"]) == (
        "success",
        "Namespace 'old' deleted successfully",
        1,
    )
    assert await conversation_ids(api, "namespace=default") == [conversation]
    assert await conversation_counts(api) == {"default": 1}


@each_case(
    ("status", "code", "method", "path", "body"),
    [
        (409, "CONFLICT", "POST", "/namespaces", {"name": "work"}),
        (409, "CONFLICT", "POST", "/namespaces", {"name": "default"}),
        (409, "CONFLICT", "PUT", "/namespaces/work/rename", {"new_name": "home"}),
        (400, "VALIDATION_ERROR", "POST", "/namespaces", {"name": "my project"}),
        (400, "VALIDATION_ERROR", "POST", "/namespaces", {"name": ""}),
        (400, "VALIDATION_ERROR", "POST", "/namespaces", {"name": "  "}),
        (400, "VALIDATION_ERROR", "POST", "/namespaces", {"name": "x" * 65}),
        (400, "VALIDATION_ERROR", "PUT", "/namespaces/work/rename", {"new_name": "a\nb"}),
        (400, "VALIDATION_ERROR", "PUT", "/namespaces/default/rename", {"new_name": "other"}),
        (400, "VALIDATION_ERROR", "DELETE", "/namespaces/default", {}),
        (422, "VALIDATION_ERROR", "POST", "/namespaces", {}),
        (404, "NOT_FOUND", "DELETE", "/namespaces/none", {}),
        (404, "NOT_FOUND", "PUT", "/namespaces/none/rename", {"new_name": "other"}),
    ],
)
async def test_invalid_namespace_operations_are_rejected(
    api: RestClient, status: int, code: str, method: str, path: str, body: dict[str, str]
) -> None:
    for name in ("work", "home"):
        await create_namespace(api, name)

    response = await send(api, method, path, "ada", **body)

    assert (response.status, response.json()["error"]["code"]) == (status, code)
    assert await conversation_counts(api) == {"default": 0, "home": 0, "work": 0}


@each_case(
    ("method", "path", "body", "message"),
    [
        ("POST", "/namespaces", {"name": "work"}, "Namespace 'work' already exists"),
        ("POST", "/namespaces", {"name": " default "}, "Namespace 'default' already exists"),
        ("PUT", "/namespaces/work/rename", {"new_name": "home"}, "Namespace 'home' already exists"),
        ("PUT", "/namespaces/none/rename", {"new_name": "other"}, "Namespace 'none' not found"),
        ("PUT", "/namespaces/default/rename", {"new_name": "other"}, "Cannot rename the default namespace"),
        ("DELETE", "/namespaces/default", {}, "Cannot delete the default namespace"),
        ("DELETE", "/namespaces/none", {}, "Namespace 'none' not found"),
    ],
)
async def test_errors_have_agentkits_wording(
    api: RestClient, method: str, path: str, body: dict[str, str], message: str
) -> None:
    for name in ("work", "home"):
        await create_namespace(api, name)

    response = (await send(api, method, path, "ada", **body)).json()

    assert (response["detail"], response["error"]["message"]) == (message, message)


async def test_response_to_renaming_has_agentkits_keys(api: RestClient) -> None:
    await create_namespace(api, "old")

    assert (await rename(api, "old", " new ")).json() == {
        "status": "success",
        "message": "Namespace 'old' renamed to 'new' successfully",
        "namespace": "new",
        "old_name": "old",
        "new_name": "new",
    }


async def test_namespaces_of_another_user_cannot_be_changed_and_do_not_conflict(api: RestClient) -> None:
    await create_namespace(api, "work")

    responses = [await rename(api, "work", "mine", "ben"), await api.request("DELETE", "/namespaces/work", "ben")]

    assert [response.status for response in responses] == [404, 404]
    assert (await create_namespace(api, "work", "ben")).status == 200
    assert await conversation_counts(api) == {"default": 0, "work": 0}
