"""`make bench-retrieval DATA=<folder>`: does a question find its answer? Asked through the real tools.

Every LoCoMo conversation is the library of a user of its own, each of its sessions a chat; SciFact's abstracts are the
notes, and again the media, of one user. The questions go through the dispatcher as a client's would.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from msgspec import Struct

from auth.context import RequestContext
from bench.judged import NEEDED, Abstract, Claim, Dialogue, Judged, MissingData, read_judged
from bench.measures import ndcg, recall
from bench.reading_desk import Desk, open_desk
from sources.drafts import ConversationDraft, MediaDraft, MessageDraft, NoteDraft

DEPTH = 10
BATCH = 500
CATEGORIES = {1: "several turns", 2: "time", 3: "open", 4: "one turn"}
NO_DATA = 2


class Asked(Struct, frozen=True):
    """One question: how well it was answered, from 0 to 1, and whether with anything at all."""

    category: str
    quality: float
    is_empty: bool


class Outcome(Struct, frozen=True):
    turns: tuple[Asked, ...]
    notes: tuple[Asked, ...]
    media: tuple[Asked, ...]

    def as_line(self) -> str:
        """SciFact counts by its notes; the media are told in the table."""
        asked = (*self.turns, *self.notes, *self.media)
        return (
            f"RESULT locomo_turn_r10={_quality(self.turns):.4f} scifact_ndcg10={_quality(self.notes):.4f} "
            f"empty_answers={fmean(one.is_empty for one in asked):.4f}"
        )


def _quality(asked: Sequence[Asked]) -> float:
    return fmean(one.quality for one in asked)


# -- LoCoMo: chats -----------------------------------------------------------------------------------------------------


async def ask_dialogue(desk: Desk, dialogue: Dialogue) -> list[Asked]:
    reader = desk.reader(dialogue.id)
    turn_of = await _store_dialogue(desk, reader, dialogue)
    asked = []
    for question in dialogue.questions:
        results = (await desk.call(reader, "chats_search", query=question.text, limit=DEPTH))["results"]
        found = [turn_of[hit["message_id"]] for hit in results if hit["message_id"]]
        asked.append(Asked(CATEGORIES[question.category], recall(found, question.evidence), not results))
    return asked


async def _store_dialogue(desk: Desk, reader: RequestContext, dialogue: Dialogue) -> dict[str, str]:
    """Which turn each message is."""
    turn_of: dict[str, str] = {}
    async with desk.libraries.library(reader) as library:
        for session in dialogue.sessions:
            chat = await library.chats.create(ConversationDraft(created_at=session[0].said_at))
            drafts = [MessageDraft(sender=turn.speaker, content=turn.text, created_at=turn.said_at) for turn in session]
            stored = await library.chats.append(chat.id, drafts)
            turn_of |= {message.id: turn.id for message, turn in zip(stored, session, strict=True)}
    return turn_of


# -- SciFact: notes and media ------------------------------------------------------------------------------------------


async def ask_notes(desk: Desk, judged: Judged) -> list[Asked]:
    reader = desk.reader("scifact")
    abstract_of: dict[str, str] = {}
    async with desk.libraries.library(reader) as library:
        for some in _batches(judged.abstracts):
            drafts = [NoteDraft(title=abstract.title, content=abstract.text) for abstract in some]
            stored = await library.notes.create_many(drafts)
            abstract_of |= {note.id: abstract.id for note, abstract in zip(stored, some, strict=True)}
    return [await _ask_claim(desk, reader, "notes_search", claim, abstract_of) for claim in judged.claims]


async def ask_media(desk: Desk, judged: Judged) -> list[Asked]:
    reader = desk.reader("scifact")
    abstract_of: dict[str, str] = {}
    async with desk.libraries.library(reader) as library:
        for some in _batches(judged.abstracts):
            drafts = [MediaDraft(title=one.title, content=one.text, media_type="article") for one in some]
            stored = await library.media.create_many(drafts)
            abstract_of |= {str(item.id): abstract.id for item, abstract in zip(stored, some, strict=True)}
    return [await _ask_claim(desk, reader, "media_search", claim, abstract_of) for claim in judged.claims]


async def _ask_claim(desk: Desk, reader: RequestContext, tool: str, claim: Claim, abstract_of: dict[str, str]) -> Asked:
    results = (await desk.call(reader, tool, query=claim.text, limit=DEPTH))["results"]
    found = [abstract_of[str(hit["id"])] for hit in results]
    return Asked(tool, ndcg(found, claim.grades, DEPTH), not results)


def _batches(abstracts: Sequence[Abstract]) -> list[Sequence[Abstract]]:
    return [abstracts[start : start + BATCH] for start in range(0, len(abstracts), BATCH)]


# -- the run -----------------------------------------------------------------------------------------------------------


async def measure(judged: Judged, root: Path) -> Outcome:
    async with open_desk(root) as desk:
        turns = [asked for dialogue in judged.dialogues for asked in await ask_dialogue(desk, dialogue)]
        notes = await ask_notes(desk, judged)
        media = await ask_media(desk, judged)
    return Outcome(tuple(turns), tuple(notes), tuple(media))


def report(judged: Judged, outcome: Outcome) -> list[str]:
    messages = sum(len(session) for dialogue in judged.dialogues for session in dialogue.sessions)
    by_category = {name: [one for one in outcome.turns if one.category == name] for name in CATEGORIES.values()}
    return [
        f"LoCoMo: {len(judged.dialogues)} conversations, {messages} turns; SciFact: {len(judged.abstracts)} abstracts",
        f"{'':<34} {'questions':>9} {'quality':>8} {'empty':>6}",
        _row("LoCoMo chats, turn R@10", outcome.turns),
        *(_row(f"  {name}", asked) for name, asked in by_category.items()),
        _row("SciFact as notes, nDCG@10", outcome.notes),
        _row("SciFact as media, nDCG@10", outcome.media),
    ]


def _row(title: str, asked: Sequence[Asked]) -> str:
    if not asked:
        return f"{title:<34} {0:>9}"
    return f"{title:<34} {len(asked):>9} {_quality(asked):>8.4f} {sum(one.is_empty for one in asked):>6}"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.retrieval", description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", help="the folder with locomo/ and scifact/")
    judged = _read(parser.parse_args(arguments).data)
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        outcome = asyncio.run(measure(judged, Path(name)))
    for line in [*report(judged, outcome), outcome.as_line()]:
        print(line)


def _read(folder: Path | None) -> Judged:
    try:
        if folder is None:
            raise MissingData("no folder was named")
        return read_judged(folder)
    except MissingData as error:
        print(f"{error}; make bench-retrieval DATA=<folder> needs these files in it:\n{NEEDED}", file=sys.stderr)
        sys.exit(NO_DATA)


if __name__ == "__main__":
    main(sys.argv[1:])
