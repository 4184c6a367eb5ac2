"""NUL is a character of SQLite's texts, and none of PostgreSQL's. Both engines refuse it where it names something."""

from pathlib import Path

from tests.cases import each_case
from tests.server.rest.rest_client import RestClient
from tests.server.rest.test_account import message_of, send


@each_case(
    ("method", "path"),
    [
        ("GET", "/api/v1/reads?uri=%00"),
        ("GET", "/api/v1/reads?uri=notes://a%00b"),
        ("DELETE", "/api/v1/keys/%00"),
        ("DELETE", "/api/v1/connections/%00"),
        ("DELETE", "/api/v1/passkeys/%00"),
        ("DELETE", "/api/v1/browser-sessions/%00"),
        ("DELETE", "/api/v1/invitations/%00"),
        ("GET", "/api/v1/users/%00"),
        ("GET", "/api/v1/follows/%00"),
        ("GET", "/api/v1/follow-deployments/%00"),
        ("GET", "/api/v1/audit?user=%00"),
        ("GET", "/api/v1/audit?action=%00"),
        ("GET", "/api/v1/items/notes/%00"),
        ("GET", "/api/v1/library/items?tag=%00"),
        ("GET", "/api/v1/import/%00"),
    ],
)
async def test_nul_in_an_address_is_refused(api: RestClient, method: str, path: str) -> None:
    headers = await api.server.bearer("ada")
    response = await send(api, headers, method, path)

    assert (response.status, "NUL" in message_of(response)) == (400, True), response.body


async def test_nul_in_a_body_is_no_error_of_the_server(api: RestClient, tmp_path: Path) -> None:
    headers = await api.server.bearer("ada")
    root = tmp_path / "user_databases"
    root.mkdir()
    responses = [
        await send(api, headers, "POST", "/api/v1/keys", {"name": "\0"}),
        await send(api, headers, "POST", "/api/v1/users", {"name": "a\0"}),
        await send(api, headers, "POST", "/api/v1/users", {"name": "a", "subject": "\0"}),
        await send(api, headers, "POST", "/api/v1/follows", {"location": "/\0"}),
        await send(
            api,
            headers,
            "POST",
            "/api/v1/follow-deployments",
            {"location": str(root), "user_name": "\0{id}"},
        ),
    ]

    assert [response.status // 100 for response in responses] == [4] * 5, [response.body for response in responses]
