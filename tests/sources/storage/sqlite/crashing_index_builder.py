"""Builds the on-demand indexes of two libraries while writing to them, until it is killed, several times:
`python -m ... root rounds` prints one line per round with the remaining messages of the last index reported."""

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
from sources.storage.sqlite.collections import SqliteLibrary
from sources.storage.sqlite.search.exact import EXACT_INDEX
from sources.storage.sqlite.search.substring import SUBSTRING_INDEX
from sources.storage.tables.sql import CHATS_INDEX
from tests.sources.storage.library_fixture import open_sqlite
from tests.sources.storage.sqlite.crashing_writer import OWNERS, run_and_kill

CONVERSATIONS = 20
MESSAGES = 40
# Small batches, so that the process is also killed between two of them.
_INDEXES = tuple(replace(index, batch_rows=10) for index in (SUBSTRING_INDEX, EXACT_INDEX))


async def create_conversations(root: Path) -> None:
    async with open_sqlite(root) as libraries:
        for owner in OWNERS:
            async with libraries.library(owner) as library:
                for number in range(CONVERSATIONS):
                    drafts = [MessageDraft(content=f"Straße {number} {n}") for n in range(MESSAGES)]
                    await library.chats.create(ConversationDraft(title=f"Talk {number}", uuid=f"t{number}"), drafts)


async def build_forever(root: Path, output: int) -> None:
    chance = random.Random(os.getpid())
    async with open_sqlite(root) as libraries, libraries.library("ada") as ada, libraries.library("ben") as ben:
        for library in cycle((ada, ben)):
            for index in _INDEXES:
                assert isinstance(library, SqliteLibrary)
                progress = await library._databases.chacha.write("chats", CHATS_INDEX, index.fill)
                await change_conversation(library, chance)
                os.write(output, f"{progress.messages}\n".encode())


async def change_conversation(library: Library, chance: random.Random) -> None:
    conversation = f"t{chance.randrange(CONVERSATIONS)}"
    messages = (await library.chats.messages(conversation, 10, 0)).rows
    await library.chats.append(conversation, [MessageDraft(content="appended")])
    await library.chats.update(conversation, ConversationDraft(title=f"Renamed {chance.random()}"))
    await library.chats.update_message(messages[0].id, MessageDraft(content="GROSS"))
    if len(messages) > 5:
        await library.chats.delete_message(messages[1].id)


def main() -> None:
    root, rounds = Path(sys.argv[1]), int(sys.argv[2])
    asyncio.run(create_conversations(root))
    chance = random.Random(rounds)
    for _ in range(rounds):
        print(run_and_kill(partial(build_forever, root), chance.randint(1, 60))[-1], flush=True)


if __name__ == "__main__":
    main()
