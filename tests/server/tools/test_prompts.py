"""A user's prompts and characters as MCP prompts."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from config.errors import InvalidParams
from sources.records import SavedPromptArgument
from tests.cases import each_case
from tests.server.rest.rest_client import RpcError
from tests.sources.source_fixture import LibraryUser, SourceFixture, open_source_fixture


async def texts(reader: LibraryUser, name: str, **arguments: str) -> list[tuple[str, str]]:
    got = await reader.request("prompts/get", name=name, arguments=arguments)
    return [(message["role"], message["content"]["text"]) for message in got["messages"]]


async def test_prompts_and_characters_are_listed_with_their_arguments(ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.add_prompt("Code review", "Review {{code}} in {language}.", details="Strict but kind.")
    await ada.add_character("Merlin", "An old wizard.", alternate_greetings=["Hm?"])
    await ben.add_prompt("Other", "x")

    listed = (await ada.request("prompts/list"))["prompts"]

    assert listed == [
        {
            "name": "prompt_1_code_review",
            "description": "Strict but kind.",
            "title": "Code review",
            "arguments": [
                {"name": "code", "description": "", "required": True},
                {"name": "language", "description": "", "required": False},
            ],
        },
        {
            "name": "character_1_merlin",
            "description": "An old wizard.",
            "title": "Merlin",
            "arguments": [
                {"name": "user", "description": "The name by which the character addresses you.", "required": False},
                {"name": "greeting", "description": "Number of the greeting, 0 to 1.", "required": False},
            ],
        },
    ]


async def test_a_prompt_is_rendered_with_its_arguments(ada: LibraryUser) -> None:
    await ada.add_prompt(
        "Review", "Review {{ code }} in {language}. {other} stays.", system_prompt="You know {language}."
    )

    messages = await texts(ada, "prompt_1_review", code="x = 1", language="Python")

    assert messages == [("user", "You know Python."), ("user", "Review x = 1 in Python. {other} stays.")]


async def test_a_placeholder_in_a_value_stays_text(ada: LibraryUser) -> None:
    await ada.add_prompt("Echo", "{{a}} {{b}}")

    assert await texts(ada, "prompt_1", a="{{b}}", b="{{a}}") == [("user", "{{b}} {{a}}")]


async def test_a_missing_required_argument_is_named(ada: LibraryUser) -> None:
    await ada.add_prompt("Review", "Review {{code}}.")

    with pytest.raises(RpcError, match="requires the argument 'code'"):
        await ada.request("prompts/get", name="prompt_1")


async def test_only_declared_arguments_are_filled(ada: LibraryUser) -> None:
    arguments = [SavedPromptArgument(name="topic", description="About what.", required=True)]
    await ada.add_prompt("Essay", "On {topic}, with {{braces}}.", arguments=arguments)

    (listed,) = (await ada.request("prompts/list"))["prompts"]

    assert listed["arguments"] == [{"name": "topic", "description": "About what.", "required": True}]
    assert await texts(ada, "prompt_1", topic="galleons", braces="no") == [("user", "On galleons, with {{braces}}.")]


async def test_braces_that_are_not_placeholders_are_kept(ada: LibraryUser) -> None:
    text = r'Use \frac{1}{2}, {"json": true}, {} and {0}.'
    await ada.add_prompt("Formula", text)

    assert await texts(ada, "prompt_1") == [("user", text)]


@each_case("name", ["prompt_1", "prompt_1_code_review", "prompt_1_an_older_name"])
async def test_a_name_stays_valid_when_the_prompt_is_renamed(ada: LibraryUser, name: str) -> None:
    await ada.add_prompt("Code review", "Review.")

    assert await texts(ada, name) == [("user", "Review.")]


@each_case(
    "name", ["prompt_2", "prompt_", "prompt_01x", "Code review", "character_1", "prompt_99999999999999999999", ""]
)
async def test_any_other_name_is_unknown(ada: LibraryUser, name: str) -> None:
    await ada.add_prompt("Code review", "Review.")

    with pytest.raises(RpcError, match="unknown prompt"):
        await ada.request("prompts/get", name=name)


async def test_a_name_in_another_script_is_listed_by_its_number(ada: LibraryUser) -> None:
    await ada.add_prompt("要約", "要約して。")
    await ada.add_prompt("Résumé!", "Write.")

    names = {prompt["name"] for prompt in (await ada.request("prompts/list"))["prompts"]}

    assert names == {"prompt_1", "prompt_2_resume"}


async def test_a_prompt_without_text_renders_its_details(ada: LibraryUser) -> None:
    await ada.add_prompt("Empty", details="Nothing yet.")

    assert await texts(ada, "prompt_1") == [("user", "Nothing yet.")]


async def test_arguments_cannot_expand_a_prompt_beyond_the_limit(tmp_path: Path) -> None:
    async with open_source_fixture(tmp_path) as fixture:
        await fixture.ada.add_prompt("Echo", "{{a}}" * 50)

        assert await texts(fixture.ada, "prompt_1", a="x" * 20_000) == [("user", "x" * 1_000_000)]
        with pytest.raises(
            InvalidParams, match="expected at most 1000000 characters in the filled prompt, got 1000050"
        ):
            await fixture.ada.request("prompts/get", name="prompt_1", arguments={"a": "x" * 20_001})


# -- characters -------------------------------------------------------------------------------------------------


async def merlin(reader: LibraryUser, **more: Any) -> None:
    await reader.add_character(
        "Merlin",
        "{{char}} is a wizard.",
        personality="Grumpy with {{user}}.",
        first_message="What do you want, {{user}}?",
        alternate_greetings=["<BOT> sleeps."],
        **more,
    )


async def test_a_character_prompt_contains_its_description_and_greeting(ada: LibraryUser) -> None:
    await merlin(ada)

    assert await texts(ada, "character_1", user="Arthur") == [
        (
            "user",
            "Play the role of Merlin in this conversation.\n\nMerlin is a wizard.\n\nPersonality: Grumpy with Arthur.",
        ),
        ("assistant", "What do you want, Arthur?"),
    ]


async def test_another_greeting_can_be_selected_and_completed(ada: LibraryUser) -> None:
    await merlin(ada, nickname="Merl")

    messages = await texts(ada, "character_1", greeting="1")
    completed = await ada.request(
        "completion/complete",
        ref={"type": "ref/prompt", "name": "character_1_merlin"},
        argument={"name": "greeting", "value": ""},
    )

    assert messages[1] == ("assistant", "Merl sleeps.")
    assert completed["completion"]["values"] == ["0", "1"]


@each_case("greeting", ["2", "-1", "first", "９"])
async def test_an_unknown_greeting_is_rejected(ada: LibraryUser, greeting: str) -> None:
    await merlin(ada)

    with pytest.raises(RpcError, match=r"greeting: expected a number from 0 to 1, got .*"):
        await ada.request("prompts/get", name="character_1", arguments={"greeting": greeting})


async def test_a_character_without_a_greeting_has_one_message(ada: LibraryUser) -> None:
    await ada.add_character("Sphinx", "Asks riddles.")

    assert [role for role, _ in await texts(ada, "character_1")] == ["user"]


async def test_the_list_of_prompts_is_paged(tmp_path: Path) -> None:
    async with open_source_fixture(tmp_path, offer={"page_size": 3}) as fixture:
        for n in range(5):
            await fixture.ada.add_prompt(f"Prompt {n}", "x")
            await fixture.ada.add_character(f"Character {n}")
        names, cursor = list[str](), None
        while True:
            page = await fixture.ada.request("prompts/list", **({"cursor": cursor} if cursor else {}))
            names += [prompt["name"] for prompt in page["prompts"]]
            if (cursor := page.get("nextCursor")) is None:
                break

    assert len(set(names)) == len(names) == 10


async def test_without_the_read_scope_no_prompt_is_listed_or_found(fixture: SourceFixture) -> None:
    await fixture.ada.add_prompt("Code review", "Review.")
    principal = msgspec.structs.replace(fixture.ada.context.principal, scopes=frozenset())
    context = msgspec.structs.replace(fixture.ada.context, scopes=frozenset[str](), principal=principal)
    outsider = msgspec.structs.replace(fixture.ada, context=context)

    assert (await outsider.request("prompts/list"))["prompts"] == []
    assert (await outsider.request("resources/list"))["resources"] == []
    with pytest.raises(InvalidParams, match="unknown prompt"):
        await outsider.request("prompts/get", name="prompt_1")
