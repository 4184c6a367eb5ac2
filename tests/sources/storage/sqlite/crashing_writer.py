"""Writes to two libraries until it is killed, several times: `python -m ... root rounds` prints one line per round.

Each round forks a child that writes and reports every item that is safely stored. After some reports the child is
killed with SIGKILL, wherever it is, and what it reported is printed.
"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft
from sources.storage.contract import Library
from tests.sources.storage.library_fixture import open_sqlite

OWNERS = ("ada", "ben")


async def write_forever(root: Path, output: int) -> None:
    async with open_sqlite(root) as libraries, libraries.library("ada") as ada, libraries.library("ben") as ben:
        turn = 0
        while True:
            owner = OWNERS[turn % 2]
            for line in await write_one((ada, ben)[turn % 2], turn):
                os.write(output, f"{owner} {line}\n".encode())
            turn += 1


async def write_one(library: Library, turn: int) -> list[str]:
    """Performs one of several kinds of writes. Returns the items that are stored when it returns."""
    words = f"word{turn} 東京 C++"
    match turn // 2 % 4:
        case 0:
            notes = await library.notes.create_many([NoteDraft(content=f"{words} {n}") for n in range(3)])
            return [f"notes {note.id}" for note in notes]
        case 1:
            conversation = await library.chats.create(ConversationDraft(title=words), [MessageDraft(content=words)] * 3)
            [message] = await library.chats.append(conversation.id, [MessageDraft(content=words)])
            await library.chats.update_message(message.id, MessageDraft(content="changed"))
            return [f"chats {conversation.id}"]
        case 2:
            item = await library.media.create(MediaDraft(title=words, content=f"{words}. " * 300))
            item = await library.media.update(item.id, MediaDraft(title=f"{words} changed"))
            return [f"media {item.id}"]
        case _:
            character = await library.characters.create(CharacterDraft(name=words))
            other = await library.characters.create(CharacterDraft(name=words))
            await library.characters.purge(other.id)
            return [f"characters {character.id}"]


def run_and_kill(work: Callable[[int], Coroutine[Any, Any, None]], lines: int) -> list[str]:
    """Runs the work in a child process, which writes lines to the descriptor it gets. Kills it after at least this many
    lines and returns them."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        asyncio.run(work(writing))
    os.close(writing)
    output = b""
    while output.count(b"\n") < lines:
        output += os.read(reading, 4096)
    os.kill(child, signal.SIGKILL)
    while rest := os.read(reading, 4096):
        output += rest
    os.close(reading)
    os.waitpid(child, 0)
    return output.decode().splitlines()


def main() -> None:
    root, rounds = Path(sys.argv[1]), int(sys.argv[2])
    chance = random.Random(rounds)
    for _ in range(rounds):
        print("\t".join(run_and_kill(partial(write_forever, root), chance.randint(1, 40))), flush=True)


if __name__ == "__main__":
    main()
