"""Prompts: found by any field or by some, read by number or by name."""

import pytest

from tests.sources.source_fixture import LibraryUser


async def library(reader: LibraryUser) -> dict[str, int]:
    return {
        "review": await reader.add_prompt("Code review", "Review this galleon.", ["dev"], author="Ada"),
        "sea": await reader.add_prompt(
            "Sea shanty", "Sing.", ["galleon"], details="For sailors.", system_prompt="Be loud."
        ),
    }


@pytest.mark.parametrize(
    ("query", "fields", "found"),
    [
        ("galleon", [], {"review", "sea"}),
        ("galleon", ["user_prompt"], {"review"}),
        ("galleon", ["keywords"], {"sea"}),
        ("galleon", ["name", "details", "system_prompt", "author"], set()),
        ("shanty", ["name"], {"sea"}),
        ("sailors", ["details"], {"sea"}),
        ("loud", ["system_prompt"], {"sea"}),
        ("ada", ["author"], {"review"}),
        ("shanty", ["author"], set()),
    ],
)
async def test_fields_limit_where_words_are_looked_for(
    ada: LibraryUser, ben: LibraryUser, query: str, fields: list[str], found: set[str]
) -> None:
    mine = await library(ada)
    await library(ben)

    hits = await ada.search("prompts_search", query, fields=fields)

    assert {hit["id"] for hit in hits} == {mine[name] for name in found}


async def test_a_field_that_prompts_do_not_have_is_refused(ada: LibraryUser) -> None:
    sentence = await ada.call_error("prompts_search", query="x", fields=["name", "colour"])

    assert sentence.startswith("fields[1]: expected one of author, details, keywords, name, ")
    assert sentence.endswith(", got 'colour'")


async def test_the_loc_of_a_prompt_names_field_and_offset(ada: LibraryUser) -> None:
    await ada.add_prompt("Shanty", "Sing.", system_prompt="You are a hoarse old sailor.")

    (hit,) = await ada.search("prompts_search", "hoarse")

    assert hit["loc"]["field"] == "system_prompt"


@pytest.mark.parametrize("form", ["number", "text", "name", "other case"])
async def test_a_prompt_is_read_by_number_or_name(ada: LibraryUser, form: str) -> None:
    number = (await library(ada))["review"]
    identity: dict[str, str | int] = {
        "number": number,
        "text": str(number),
        "name": "Code review",
        "other case": "CODE REVIEW",
    }

    assert (await ada.read("prompts", identity[form]))["meta"]["id"] == number


async def test_a_name_that_is_a_number_is_found_when_no_prompt_has_that_number(ada: LibraryUser) -> None:
    await ada.add_prompt("1984", "Write like Orwell.")

    assert (await ada.read("prompts", "1984"))["meta"]["title"] == "1984"


async def test_a_prompt_is_read_whole_under_headings(ada: LibraryUser) -> None:
    sea = (await library(ada))["sea"]

    answer = await ada.read("prompts", sea)

    assert answer["mode"] == "full"
    assert answer["content"] == (
        "# Sea shanty\n\n## Details\n\nFor sailors.\n\n## System prompt\n\nBe loud.\n\n## User prompt\n\nSing.\n\n"
        "## Keywords\n\ngalleon"
    )


async def test_an_absent_prompt_is_named_as_it_was_asked_for(ada: LibraryUser) -> None:
    assert await ada.call_error("prompts_get", prompt_id_or_name="Haiku") == "prompt 'Haiku' not found"
