"""What the libraries of the older versions contain."""

from config.paths import UserId
from sources.drafts import NoteDraft
from tests.sources.storage.library_fixture import LibraryFixture, make_search


async def check_contents(libraries: LibraryFixture, user_id: UserId, name: str) -> None:
    """Lists, searches and reads all items of a user, as the user and as an agent of the user."""
    person, owner = name.title(), user_id.removeprefix("u_")
    agent = libraries.context(owner, is_agent=True)
    async with libraries.library(owner) as library, libraries.engine.library(agent) as for_agents:
        for items, title in (
            (await library.notes.list(10, 0), f"Kettle of {person}"),
            (await library.observations.list(10, 0), f"Learned by {person}"),
            (await library.media.list(10, 0), f"Lecture {person}"),
        ):
            assert [row.title for row in items.rows] == [title]
        assert [row.name for row in (await library.characters.list(10, 0)).rows] == [f"Guide {person}"]
        assert [row.name for row in (await library.prompts.list(10, 0)).rows] == [f"Summary {person}"]
        conversations = {row.title: row for row in (await library.chats.list(10, 0)).rows}
        assert {f"Tea talk of {person}", "Archived thread"} <= set(conversations)
        assert len(conversations) == 3
        talk = await library.chats.messages(conversations[f"Tea talk of {person}"].id, 10, 0)
        assert [message.content[:13] for message in talk.rows] == [
            "Which leaves ",
            "Second flush.",
            "The safe code",
            "Thanks",
        ]
        for query, collection in (
            ("steam 東京 C++", library.notes),
            ("degrees", library.observations),
            ("galleon", library.media),
            ("house", library.characters),
            ("briefly", library.prompts),
            ("mango", library.chats),
        ):
            assert (await collection.search(make_search(query))).total == 1, query
        # A message for people only is neither found by agents nor part of the context of the next message.
        for query, for_all in (("pomelo", 0), ("leaves", 2)):
            assert (await library.chats.search(make_search(query))).total == (for_all or 1), query
            assert (await for_agents.chats.search(make_search(query))).total == for_all, query


async def check_writing(libraries: LibraryFixture, user_id: UserId) -> None:
    async with libraries.library(user_id.removeprefix("u_")) as library:
        note = await library.notes.create(NoteDraft(title="Saucer", content="porcelain"))
        assert (await library.notes.search(make_search("porcelain"))).total == 1
        await library.notes.delete(note.id)
