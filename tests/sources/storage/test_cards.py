"""Characters and prompts: all their fields, and which of them a query was found in."""

import pytest

from config.errors import InvalidParams, NotFound
from sources.drafts import CharacterDraft, PromptDraft
from sources.records import SavedPromptArgument
from sources.storage.contract import Library
from tests.sources.storage.library_fixture import ids, make_search

CARD = {
    "name": "Aria",
    "description": "A tea merchant",
    "personality": "calm",
    "scenario": "a market",
    "first_message": "Welcome",
    "message_example": "<START>",
    "system_prompt": "Stay in character",
    "post_history_instructions": "Be brief",
    "creator_notes": "For tests",
    "creator": "us",
    "character_version": "3",
    "nickname": "Ari",
    "alternate_greetings": ("Hello", "Grüße"),
    "group_only_greetings": ("All welcome",),
    "card": {"spec": "chara_card_v3", "unknown": {"deep": [1]}},
}


async def test_every_field_of_a_card_is_kept(ada: Library, ben: Library) -> None:
    made = await ada.characters.create(CharacterDraft(**CARD))  # type: ignore[arg-type]  # a table of many types
    assert {name: getattr(made, name) for name in CARD} == CARD
    assert await ada.characters.get(made.id) == made
    with pytest.raises(NotFound):
        await ben.characters.get(made.id)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("merchant", "description"),
        ("market", "scenario"),
        ("grüße", "alternate_greetings"),
        ("healer", "tags"),
        ("aria", "description"),
    ],
)
async def test_a_character_is_found_with_the_field_that_says_it(ada: Library, query: str, field: str) -> None:
    made = await ada.characters.create(CharacterDraft(**CARD, tags=["healer"]))  # type: ignore[arg-type]  # as above
    [hit] = (await ada.characters.search(make_search(query))).hits
    assert (hit.id, hit.title, hit.field) == (made.id, "Aria", field)


async def test_a_character_that_says_nothing_is_found_by_its_name(ada: Library) -> None:
    await ada.characters.create(CharacterDraft(name="Aria"))
    [hit] = (await ada.characters.search(make_search("aria"))).hits
    assert (hit.field, hit.text) == ("name", "Aria")


async def test_a_prompt_keeps_its_arguments(ada: Library) -> None:
    arguments = (
        SavedPromptArgument(name="text", description="what to sum up", required=True),
        SavedPromptArgument(name="n"),
    )
    made = await ada.prompts.create(PromptDraft(name="Sum up", arguments=arguments, user_prompt="{{text}}", author="A"))
    assert (made.arguments, made.user_prompt, made.author) == (arguments, "{{text}}", "A")
    assert await ada.prompts.get(made.id) == made


async def test_a_prompt_is_got_by_its_name_as_written_first_then_in_any_case(ada: Library, ben: Library) -> None:
    lower = await ada.prompts.create(PromptDraft(name="sum up"))
    upper = await ada.prompts.create(PromptDraft(name="Sum Up"))
    assert (await ada.prompts.get_by_name("sum up")).id == lower.id
    assert (await ada.prompts.get_by_name("SUM UP")).id == upper.id
    for library, name in ((ada, "sum"), (ben, "sum up")):
        with pytest.raises(NotFound):
            await library.prompts.get_by_name(name)


async def test_prompts_are_found_in_the_fields_asked_for(ada: Library) -> None:
    named = await ada.prompts.create(PromptDraft(name="Tea", user_prompt="Write about milk"))
    told = await ada.prompts.create(PromptDraft(name="Milk", user_prompt="Write about tea", tags=["poetry"]))
    assert set(ids(await ada.prompts.search(make_search("tea")))) == {named.id, told.id}
    assert ids(await ada.prompts.search(make_search("tea", fields=("name",)))) == [named.id]
    found = await ada.prompts.search(make_search("tea", fields=("user_prompt", "details")))
    assert [(hit.id, hit.field) for hit in found.hits] == [(told.id, "user_prompt")]
    assert [hit.field for hit in (await ada.prompts.search(make_search("poetry", fields=("keywords",)))).hits] == [
        "keywords"
    ]


@pytest.mark.parametrize("name", ["", "   "])
async def test_characters_and_prompts_need_a_name(ada: Library, name: str) -> None:
    for create in (
        lambda: ada.characters.create(CharacterDraft(name=name)),
        lambda: ada.prompts.create(PromptDraft(name=name)),
        lambda: ada.characters.create(CharacterDraft(description="x")),
        lambda: ada.prompts.create(PromptDraft()),
    ):
        with pytest.raises(InvalidParams, match=r"name: expected a non-empty string, got .+"):
            await create()


async def test_batches_of_cards_are_written_whole(ada: Library) -> None:
    with pytest.raises(InvalidParams):
        await ada.characters.create_many([CharacterDraft(name="Aria"), CharacterDraft()])
    with pytest.raises(InvalidParams):
        await ada.prompts.create_many([PromptDraft(name="Sum up"), PromptDraft()])
    assert len(await ada.characters.create_many([CharacterDraft(name=f"C{n}") for n in range(3)])) == 3
    assert len(await ada.prompts.create_many([PromptDraft(name=f"P{n}") for n in range(3)])) == 3
    assert (await ada.characters.list(10, 0)).total == (await ada.prompts.list(10, 0)).total == 3
