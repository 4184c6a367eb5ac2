"""`florilegium group` and `florilegium share`, for the operator and for a person."""

from tests.server.cli.program import Program


def members(program: Program) -> dict[str, str]:
    listed = program.run("group", "members", "team", "--json").json["members"]
    return {one["name"]: one["role"] for one in listed}


def test_the_operator_creates_a_group_and_adds_people(program: Program) -> None:
    program.with_users("ada", "ben", "cy")
    assert "manager: expected the name of a user" in program.run("group", "create", "team").stderr
    assert program.expect("group", "create", "team", "--manager", "ada").startswith("Created the group team.")
    assert program.expect("group", "add", "team", "ben", "--role", "writer") == "Added ben."
    program.expect("group", "role", "team", "ben", "manager")
    program.expect("group", "remove", "team", "ada")
    assert members(program) == {"ben": "manager"}
    program.expect("group", "rename", "team", "crew")
    assert [one["name"] for one in program.run("group", "list", "--json").json["groups"]] == ["crew"]
    # Names are of one kind, and a group is no user.
    assert "a group named 'crew' already exists" in program.run("user", "add", "Crew").stderr
    assert program.run("user", "disable", "crew").stderr.endswith("user 'crew' not found\n")
    assert program.run("key", "create", "crew").stderr.endswith("'crew' is a group; only people have keys\n")
    assert "add --yes" in program.run("group", "delete", "crew").stderr
    program.expect("group", "delete", "crew", "--yes")
    assert program.run("group", "list", "--json").json["groups"] == []


def test_people_invite_and_answer(program: Program) -> None:
    program.with_users("ada", "ben")
    program.expect("group", "create", "team", "--user", "ada")
    link = program.run("group", "invite", "team", "--user", "ada", "--role", "writer", "--json")
    assert link.json["link"]
    assert program.expect("group", "accept", link.json["link"], "--user", "ben") == "Joined team as writer."
    assert members(program) == {"ada": "manager", "ben": "writer"}
    assert "only a manager" in program.run("group", "rename", "team", "x", "--user", "ben").stderr
    assert program.run("group", "leave", "team", "--user", "ben").code == 0
    assert program.run("group", "members", "team", "--user", "ben").stderr.endswith("group 'team' not found\n")


def test_people_share_by_a_rule(program: Program) -> None:
    program.with_users("ada", "ben")
    assert "--user: expected" in program.run("share", "create", "tag", "recipes", "ben").stderr
    refused = program.run("share", "create", "source", "recipes", "ben", "--user", "ada")
    assert "value: expected one of notes, media, chats, characters, prompts, got 'recipes'" in refused.stderr
    shared = program.expect("share", "create", "tag", "recipes", "ben", "--user", "ada")
    assert shared.startswith("Shared recipes with ben (s_")
    [share] = program.run("share", "list", "--json", "--user", "ben").json["shares"]
    assert (share["owner"], share["by"], share["value"]) == ("ada", "tag", "recipes")
    key = program.run("key", "create", "ben", "--library", "ada/recipes", "--json").json
    assert key["libraries"] == [share["id"]]
    program.expect("share", "delete", share["id"], "--user", "ada")
    assert program.run("share", "list", "--json").json["shares"] == []


def test_commands_on_libraries_take_a_group_as_their_user(program: Program) -> None:
    program.with_users("ada", "ben")
    program.expect("group", "create", "team", "--manager", "ada")
    program.expect("add", "notes", "Steep for three minutes.", "--title", "Tea", "--user", "team")
    assert "Tea" in program.expect("search", "steep", "--user", "team")
    assert program.expect("search", "steep", "--user", "ada").splitlines()[0].endswith(" · team")
    assert "Tea" not in program.run("search", "steep", "--user", "ben").stdout
    program.expect("export", "copy", "--library", "team")
    assert (
        "--user and --library cannot be combined"
        in program.run("import", "copy", "--library", "a", "--user", "b").stderr
    )
    program.expect("user", "quota", "team", "--max-items", "1")
    assert program.run("add", "notes", "Grind.", "--user", "team").code == 1
