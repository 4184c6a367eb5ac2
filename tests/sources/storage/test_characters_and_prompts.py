"""Characters and prompts: their fields, and which field a search matched."""

import pytest

from config.errors import InvalidParams, NotFound
from sources.drafts import CharacterDraft, PromptDraft
from sources.records import SavedPromptArgument
from sources.storage.contract import Library
from tests.cases import each_case
from tests.sources.storage.library_fixture import ids, make_search

pytestmark = pytest.mark.postgres(is_contract=True)

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


async def test_every_field_of_a_card_is_stored(ada: Library, ben: Library) -> None:
    created = await ada.characters.create(CharacterDraft(**CARD))  # type: ignore[arg-type]  # the values have different types
    assert {name: getattr(created, name) for name in CARD} == CARD
    assert await ada.characters.get(created.id) == created
    with pytest.raises(NotFound):
        await ben.characters.get(created.id)


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
async def test_hit_of_a_character_names_the_matching_field(ada: Library, query: str, field: str) -> None:
    created = await ada.characters.create(CharacterDraft(**CARD, tags=["healer"]))  # type: ignore[arg-type]  # as above
    [hit] = (await ada.characters.search(make_search(query))).hits
    assert (hit.id, hit.title, hit.field) == (created.id, "Aria", field)


async def test_item_about_a_person_ranks_above_items_of_the_person(ada: Library) -> None:
    long = f"For the garden that Ana planted. {'More of it. ' * 50}"
    by = await ada.prompts.create(PromptDraft(name="Letter", author="Ana", details="Writes a letter."))
    about = await ada.prompts.create(PromptDraft(name="Plan", author="Ben", details=long))
    by_and_about = await ada.prompts.create(PromptDraft(name="List", author="Ana", details=long))
    assert ids(await ada.prompts.search(make_search("who is Ana?"))) == [by_and_about.id, about.id, by.id]
    [letter, *_] = (await ada.prompts.search(make_search("letter by Ana"))).hits
    assert letter.id == by.id
    await ada.characters.create(CharacterDraft(**CARD))  # type: ignore[arg-type]  # as above
    [card] = (await ada.characters.search(make_search("us"))).hits
    assert card.field == "creator"
    assert card.score == pytest.approx(0.23, abs=0.01)


async def test_character_without_text_is_found_by_its_name(ada: Library) -> None:
    await ada.characters.create(CharacterDraft(name="Aria"))
    [hit] = (await ada.characters.search(make_search("aria"))).hits
    assert (hit.field, hit.text) == ("name", "Aria")


async def test_arguments_of_a_prompt_are_stored(ada: Library) -> None:
    arguments = (
        SavedPromptArgument(name="text", description="what to sum up", required=True),
        SavedPromptArgument(name="n"),
    )
    created = await ada.prompts.create(
        PromptDraft(name="Sum up", arguments=arguments, user_prompt="{{text}}", author="A")
    )
    assert (created.arguments, created.user_prompt, created.author) == (arguments, "{{text}}", "A")
    assert await ada.prompts.get(created.id) == created


async def test_prompt_name_is_matched_exactly_before_ignoring_case(ada: Library, ben: Library) -> None:
    lower = await ada.prompts.create(PromptDraft(name="sum up"))
    upper = await ada.prompts.create(PromptDraft(name="Sum Up"))
    assert (await ada.prompts.get_by_name("sum up")).id == lower.id
    assert (await ada.prompts.get_by_name("SUM UP")).id == upper.id
    for library, name in ((ada, "sum"), (ben, "sum up")):
        with pytest.raises(NotFound):
            await library.prompts.get_by_name(name)


async def test_prompt_search_can_be_restricted_to_fields(ada: Library) -> None:
    by_name = await ada.prompts.create(PromptDraft(name="Tea", user_prompt="Write about milk"))
    by_text = await ada.prompts.create(PromptDraft(name="Milk", user_prompt="Write about tea", tags=["poetry"]))
    assert set(ids(await ada.prompts.search(make_search("tea")))) == {by_name.id, by_text.id}
    assert ids(await ada.prompts.search(make_search("tea", fields=("name",)))) == [by_name.id]
    page = await ada.prompts.search(make_search("tea", fields=("user_prompt", "details")))
    assert [(hit.id, hit.field) for hit in page.hits] == [(by_text.id, "user_prompt")]
    assert [hit.field for hit in (await ada.prompts.search(make_search("poetry", fields=("keywords",)))).hits] == [
        "keywords"
    ]


@each_case("name", ["", "   "])
async def test_characters_and_prompts_require_a_name(ada: Library, name: str) -> None:
    for create in (
        lambda: ada.characters.create(CharacterDraft(name=name)),
        lambda: ada.prompts.create(PromptDraft(name=name)),
        lambda: ada.characters.create(CharacterDraft(description="x")),
        lambda: ada.prompts.create(PromptDraft()),
    ):
        with pytest.raises(InvalidParams, match=r"name: expected a non-empty string, got .+"):
            await create()


async def test_batch_is_written_completely_or_not_at_all(ada: Library) -> None:
    with pytest.raises(InvalidParams):
        await ada.characters.create_many([CharacterDraft(name="Aria"), CharacterDraft()])
    with pytest.raises(InvalidParams):
        await ada.prompts.create_many([PromptDraft(name="Sum up"), PromptDraft()])
    assert len(await ada.characters.create_many([CharacterDraft(name=f"C{n}") for n in range(3)])) == 3
    assert len(await ada.prompts.create_many([PromptDraft(name=f"P{n}") for n in range(3)])) == 3
    assert (await ada.characters.list(10, 0)).total == (await ada.prompts.list(10, 0)).total == 3
