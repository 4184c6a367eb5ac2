"""Writes to a library until it is killed, again and again: `python -m ... root rounds`, one line for each round.

Each round forks a child that writes and tells after every write what is now safe; after some tellings the child is
killed with SIGKILL, wherever it is. What it told is printed.
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


async def write_forever(root: Path, told: int) -> None:
    async with open_sqlite(root) as libraries, libraries.library("ada") as ada, libraries.library("ben") as ben:
        turn = 0
        while True:
            owner = OWNERS[turn % 2]
            for line in await write_one((ada, ben)[turn % 2], turn):
                os.write(told, f"{owner} {line}\n".encode())
            turn += 1


async def write_one(library: Library, turn: int) -> list[str]:
    """One write of a kind that depends on the turn; the items that are safe when it returns."""
    words = f"word{turn} 東京 C++"
    match turn // 2 % 4:
        case 0:
            notes = await library.notes.create_many([NoteDraft(content=f"{words} {n}") for n in range(3)])
            return [f"notes {note.id}" for note in notes]
        case 1:
            talk = await library.chats.create(ConversationDraft(title=words), [MessageDraft(content=words)] * 3)
            more = await library.chats.append(talk.id, [MessageDraft(content=words)])
            await library.chats.update_message(more[0].id, MessageDraft(content="changed"))
            return [f"chats {talk.id}"]
        case 2:
            item = await library.media.create(MediaDraft(title=words, content=f"{words}. " * 300))
            item = await library.media.update(item.id, MediaDraft(title=f"{words} changed"))
            return [f"media {item.id}"]
        case _:
            character = await library.characters.create(CharacterDraft(name=words))
            gone = await library.characters.create(CharacterDraft(name=words))
            await library.characters.purge(gone.id)
            return [f"characters {character.id}"]


def one_round(work: Callable[[int], Coroutine[Any, Any, None]], lines: int) -> list[str]:
    """What a child told, to the descriptor it is given, before it was killed, after so many lines at least."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        asyncio.run(work(writing))
    os.close(writing)
    told = b""
    while told.count(b"\n") < lines:
        told += os.read(reading, 4096)
    os.kill(child, signal.SIGKILL)
    while rest := os.read(reading, 4096):
        told += rest
    os.close(reading)
    os.waitpid(child, 0)
    return told.decode().splitlines()


def main() -> None:
    root, rounds = Path(sys.argv[1]), int(sys.argv[2])
    chance = random.Random(rounds)
    for _ in range(rounds):
        print("\t".join(one_round(partial(write_forever, root), chance.randint(1, 40))), flush=True)


if __name__ == "__main__":
    main()
