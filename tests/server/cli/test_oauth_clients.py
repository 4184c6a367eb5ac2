import pytest

from tests.cases import each_case
from tests.server.cli.program import Program

URI = "https://app.example.com/callback"


@pytest.fixture
def program(program: Program) -> Program:
    """With two users."""
    program.with_users("ada", "ben")
    return program


def test_client_is_added_listed_and_removed(program: Program) -> None:
    public = program.run("client", "add", "App", "--redirect-uri", URI, "--json").json
    secret = program.run("client", "add", "Service", "--redirect-uri", URI, "--confidential", "--json").json
    device = program.run("client", "add", "TV", "--device", "--json").json
    enterprise = program.run("client", "add", "Hosted", "--enterprise", "--confidential", "--json").json
    unproven = program.run("client", "add", "Hosted", "--enterprise")
    listed = program.run("client", "list", "--json").json
    table = program.expect("client", "list")
    removed = program.expect("client", "remove", public["id"])

    assert secret["client_secret"].startswith("flos_")
    assert "client_secret" not in public
    assert device["redirect_uris"] == enterprise["redirect_uris"] == []
    assert "urn:ietf:params:oauth:grant-type:jwt-bearer" in enterprise["grant_types"]
    assert unproven.code == 2
    assert {row["id"]: row["is_confidential"] for row in listed} == {
        public["id"]: False,
        secret["id"]: True,
        device["id"]: False,
        enterprise["id"]: True,
    }
    assert "operator, confidential" in table
    assert secret["client_secret"] not in table
    assert f"Removed {public['id']}; 0 connections ended." in removed
    log = [(row["action"], row["target"]) for row in program.run("audit", "--json").json]
    assert log == [
        ("client.remove", public["id"]),
        *(("client.add", row["id"]) for row in (enterprise, device, secret, public)),
    ]
    assert public["id"] not in program.expect("client", "list")


@each_case("uri", ["http://app.example.com/", "javascript:alert(1)", "https://app.example.com/#x"])
def test_unsafe_redirect_uri_is_refused(program: Program, uri: str) -> None:
    outcome = program.run("client", "add", "App", "--redirect-uri", uri)

    assert outcome.code == 1
    assert "redirect_uris: expected" in outcome.stderr


def test_unknown_client_cannot_be_removed(program: Program) -> None:
    outcome = program.run("client", "remove", "c_unknown")

    assert (outcome.code, "client 'c_unknown' not found" in outcome.stderr) == (1, True)
