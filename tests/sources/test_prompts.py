"""Prompts: search in all or some fields, reading by id or name."""

import pytest

from tests.cases import each_case
from tests.sources.source_fixture import LibraryUser


async def add_prompts(user: LibraryUser) -> dict[str, int]:
    return {
        "review": await user.add_prompt("Code review", "Review this galleon.", ["dev"], author="Ada"),
        "sea": await user.add_prompt(
            "Sea shanty", "Sing.", ["galleon"], details="For sailors.", system_prompt="Be loud."
        ),
    }


@pytest.mark.parametrize(
    ("query", "fields", "names"),
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
async def test_fields_restrict_the_search(
    ada: LibraryUser, ben: LibraryUser, query: str, fields: list[str], names: set[str]
) -> None:
    mine = await add_prompts(ada)
    await add_prompts(ben)

    hits = await ada.search("prompts_search", query, fields=fields)

    assert {hit["id"] for hit in hits} == {mine[name] for name in names}


async def test_unknown_field_is_rejected(ada: LibraryUser) -> None:
    message = await ada.call_error("prompts_search", query="x", fields=["name", "colour"])

    assert message.startswith("fields[1]: expected one of author, details, keywords, name, ")
    assert message.endswith(", got 'colour'")


async def test_loc_contains_field_and_offset(ada: LibraryUser) -> None:
    await ada.add_prompt("Shanty", "Sing.", system_prompt="You are a hoarse old sailor.")

    (hit,) = await ada.search("prompts_search", "hoarse")

    assert hit["loc"]["field"] == "system_prompt"


@each_case("form", ["number", "text", "name", "other case"])
async def test_prompt_can_be_read_by_id_or_name(ada: LibraryUser, form: str) -> None:
    number = (await add_prompts(ada))["review"]
    forms: dict[str, str | int] = {
        "number": number,
        "text": str(number),
        "name": "Code review",
        "other case": "CODE REVIEW",
    }

    assert (await ada.read("prompts", forms[form]))["meta"]["id"] == number


async def test_numeric_name_is_found_if_no_prompt_has_that_id(ada: LibraryUser) -> None:
    await ada.add_prompt("1984", "Write like Orwell.")

    assert (await ada.read("prompts", "1984"))["meta"]["title"] == "1984"


async def test_prompt_is_returned_whole_under_headings(ada: LibraryUser) -> None:
    sea = (await add_prompts(ada))["sea"]

    response = await ada.read("prompts", sea)

    assert response["mode"] == "full"
    assert response["content"] == (
        "# Sea shanty\n\n## Details\n\nFor sailors.\n\n## System prompt\n\nBe loud.\n\n## User prompt\n\nSing.\n\n"
        "## Keywords\n\ngalleon"
    )


async def test_missing_prompt_is_reported_by_the_requested_name(ada: LibraryUser) -> None:
    assert await ada.call_error("prompts_get", prompt_id_or_name="Haiku") == "prompt 'Haiku' not found"
