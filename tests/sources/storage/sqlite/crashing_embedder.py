"""Embeds two libraries while writing to them, until it is killed, several times: `python -m ... root rounds` prints one
line per round with the share of the rows that had vectors."""

import asyncio
import os
import random
import sys
from functools import partial
from pathlib import Path

from sources.drafts import ConversationDraft, MessageDraft
from sources.storage.contract import Library
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_sqlite
from tests.sources.storage.sqlite.crashing_writer import OWNERS, run_and_kill

CONVERSATIONS = 20
MESSAGES = 40
_CAR = "My automobile needs new tyres and an oil change before winter."


async def create_conversations(root: Path) -> None:
    async with open_sqlite(root) as libraries:
        for owner in OWNERS:
            async with libraries.library(owner) as library:
                for number in range(CONVERSATIONS):
                    drafts = [MessageDraft(sender="Ana", content=f"Turn {n} of talk {number}") for n in range(MESSAGES)]
                    await library.chats.create(ConversationDraft(title=f"Talk {number}", uuid=f"t{number}"), drafts)
                await library.chats.append("t0", [MessageDraft(content=_CAR)])


async def embed_forever(root: Path, output: int) -> None:
    chance = random.Random(os.getpid())
    async with open_sqlite(root, semantic_model="fast") as libraries:
        await wait_for_vectors(libraries)
        while True:
            for owner in OWNERS:
                await change_and_report(libraries, owner, chance, output)


async def wait_for_vectors(libraries: LibraryFixture) -> None:
    """On a busy machine the process with the model takes seconds to start."""
    for _ in range(600):
        async with libraries.library(OWNERS[0]) as library:
            if (await library.chats.search(make_search("vehicle", limit=1))).semantic.coverage:
                return
        await asyncio.sleep(0.1)


async def change_and_report(libraries: LibraryFixture, owner: str, chance: random.Random, output: int) -> None:
    async with libraries.library(owner) as library:
        await change_conversation(library, chance)
        page = await library.chats.search(make_search("vehicle", limit=1))
    await asyncio.sleep(0.01)
    os.write(output, f"{page.semantic.coverage or 0}\n".encode())


async def change_conversation(library: Library, chance: random.Random) -> None:
    conversation = f"t{chance.randrange(1, CONVERSATIONS)}"
    messages = (await library.chats.messages(conversation, 10, 0)).rows
    await library.chats.append(conversation, [MessageDraft(content="appended")])
    await library.chats.update_message(messages[0].id, MessageDraft(content="changed"))
    if len(messages) > 5:
        await library.chats.delete_message(messages[1].id)


def main() -> None:
    root, rounds = Path(sys.argv[1]), int(sys.argv[2])
    asyncio.run(create_conversations(root))
    chance = random.Random(rounds)
    for _ in range(rounds):
        print(run_and_kill(partial(embed_forever, root), chance.randint(1, 60))[-1], flush=True)


if __name__ == "__main__":
    main()
