"""`florilegium embed` and `florilegium similar` on a local library with two users."""

import pytest

from server.cli.search import semantic_note
from sources.records import SemanticStatus
from tests.server.cli.program import Program

ADA = ("--user", "ada", "--semantic-model", "fast")
BEN = ("--user", "ben", "--semantic-model", "fast")


@pytest.fixture
def program(program: Program) -> Program:
    program.with_users("ada", "ben")
    program.expect("add", "note", "My automobile needs new tyres.", "--title", "Garage", "--user", "ada")
    program.expect("add", "note", "The van has worn tyres.", "--title", "Repairs", "--user", "ada")
    program.expect("add", "note", "Knead the dough and bake the loaf.", "--title", "Kitchen", "--user", "ben")
    return program


def test_embedded_library_is_searched_by_meaning(program: Program) -> None:
    before = program.run("search", "vehicle", *ADA)
    assert before.code == 1
    assert "run `florilegium embed`" in before.stderr

    assert program.expect("embed", *ADA) == "2 passages embedded; the library is complete."
    assert program.run("embed", *ADA, "--json").json == {"passages": 0}

    found = program.run("search", "vehicle", *ADA, "--json").json
    assert {hit["title"] for hit in found["results"]} == {"Garage", "Repairs"}
    assert found["semantic"] == {"status": "on", "coverage": 1.0}
    assert program.run("search", "vehicle", *BEN, "--json").json["semantic"] == {"status": "partial", "coverage": 0.0}


def test_source_without_embeddings_counts_by_its_items(program: Program) -> None:
    program.expect("embed", *ADA)
    program.expect("add", "prompt", "Ask about the garage.", "--title", "Questions", "--user", "ada")

    result = program.run("search", "vehicle", *ADA)

    assert "meanings of 66% of the items compared; run `florilegium embed` for the others" in result.stderr
    found = program.run("search", "vehicle", *ADA, "--json").json["semantic"]
    assert found == {"status": "partial", "coverage": 0.666}
    assert program.run("search", "loaf", *BEN, "--json").json["semantic"] == {"status": "partial", "coverage": 0.0}


def test_embed_without_a_model_says_how_to_choose_one(program: Program) -> None:
    result = program.run("embed", "--user", "ada")
    assert result.code == 1
    assert "semantic_model" in result.stderr


def test_similar_items_are_shown_to_their_owner_only(program: Program) -> None:
    program.expect("embed", *ADA)
    items = {hit["title"]: hit["uri"] for hit in program.run("search", "tyres", *ADA, "--json").json["results"]}

    found = program.run("similar", items["Garage"], *ADA, "--json").json

    assert [hit["uri"] for hit in found["results"]] == [items["Repairs"]]
    assert "Repairs" in program.expect("similar", items["Garage"], *ADA)
    assert program.run("similar", items["Garage"], *BEN).code == 1

    without_model = program.run("similar", items["Garage"], "--user", "ada")
    assert without_model.code == 1
    assert "No similar items: no embedding model is configured; set semantic_model." in without_model.stderr


def test_share_of_compared_meanings_is_shown_as_it_is() -> None:
    [note] = semantic_note(SemanticStatus("partial", 0.29))
    assert note.startswith("meanings of 29% of the items compared")
