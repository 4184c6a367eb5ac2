"""Makes the indexes of two large libraries while they are written to, and is killed again and again:
`python -m ... root rounds`, one line for each round with how far the last index that was told of had come."""

import asyncio
import os
import random
import sys
from functools import partial
from itertools import cycle
from pathlib import Path

from msgspec.structs import replace

from sources.drafts import ConversationDraft, MessageDraft
from sources.storage.contract import Library
from sources.storage.sqlite.connection.library import SqliteLibrary
from sources.storage.sqlite.schema.chacha import CHATS_INDEX
from sources.storage.sqlite.search.exact import EXACT_INDEX
from sources.storage.sqlite.search.substring import SUBSTRING_INDEX
from tests.sources.storage.library_fixture import open_sqlite
from tests.sources.storage.sqlite.crashing_writer import OWNERS, one_round

TALKS = 20
MESSAGES = 40
# So small that a kill hits between two batches.
_INDEXES = tuple(replace(index, batch_rows=10) for index in (SUBSTRING_INDEX, EXACT_INDEX))


async def prepare(root: Path) -> None:
    async with open_sqlite(root) as libraries:
        for owner in OWNERS:
            async with libraries.library(owner) as library:
                for talk in range(TALKS):
                    drafts = [MessageDraft(content=f"Straße {talk} {n}") for n in range(MESSAGES)]
                    await library.chats.create(ConversationDraft(title=f"Talk {talk}", uuid=f"t{talk}"), drafts)


async def make_forever(root: Path, told: int) -> None:
    chance = random.Random(os.getpid())
    async with open_sqlite(root) as libraries, libraries.library("ada") as ada, libraries.library("ben") as ben:
        for library in cycle((ada, ben)):
            for index in _INDEXES:
                assert isinstance(library, SqliteLibrary)
                progress = await library._databases.chacha.write("chats", CHATS_INDEX, index.fill)
                await change(library, chance)
                os.write(told, f"{progress.messages}\n".encode())


async def change(library: Library, chance: random.Random) -> None:
    talk = f"t{chance.randrange(TALKS)}"
    messages = (await library.chats.messages(talk, 10, 0)).rows
    await library.chats.append(talk, [MessageDraft(content="appended")])
    await library.chats.update(talk, ConversationDraft(title=f"Renamed {chance.random()}"))
    await library.chats.update_message(messages[0].id, MessageDraft(content="GROSS"))
    if len(messages) > 5:
        await library.chats.delete_message(messages[1].id)


def main() -> None:
    root, rounds = Path(sys.argv[1]), int(sys.argv[2])
    asyncio.run(prepare(root))
    chance = random.Random(rounds)
    for _ in range(rounds):
        print(one_round(partial(make_forever, root), chance.randint(1, 60))[-1], flush=True)


if __name__ == "__main__":
    main()
