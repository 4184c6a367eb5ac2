"""`make bench-answers`: does the first response to a question show its answer?

Questions are sent over MCP and HTTP to a server process with the query as the only argument, as models do: to
`knowledge_search` and, in the profile `research`, to `search`. For comparison, `knowledge_search` is also called with
`limit: 8`. The questions about the demo library are in `answers.toml`. Those about LoCoMo's conversations are chosen
from its questions by a rule (see `choose_questions`), because its licence does not allow copies; they need its folder.
Everything is measured by words alone and with each model of semantic search, after all text was embedded.
"""

import argparse
import asyncio
import re
import shutil
import statistics
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from auth.context import READ, SCOPES, ClientId, Principal, build_context
from bench.datasets import Dialogue, MissingDataset, read_dialogues
from bench.local_runtime import WORDS_ONLY, installed_models
from bench.processes import Cores, child, python
from bench.request_templates import ToolCall
from bench.startup import announced_mcp_url
from bench.tokenizer import count_tokens
from bench.tokens import DemoClient
from bench.vector_cache import embed_libraries
from config.paths import UserId
from config.settings import Settings
from server.lifespan import open_runtime
from sources.demo import DemoCollection, DemoFields, DemoMedia, fill, read_demo
from sources.drafts import ConversationDraft, MessageDraft
from sources.semantic.service import UNKNOWN_WORDS
from sources.storage.contract import Library

QUESTIONS = Path(__file__).with_suffix(".toml")
DEMO, LOCOMO = "demo", "LoCoMo"
WORDS = "words"
# A shorter answer occurs by chance.
LOCOMO_ANSWER_MIN_CHARS = 8
# So that both parts have about as many questions: one conversation has only eight that qualify.
LOCOMO_MAX_PER_CONVERSATION = 21
SHORT_PAGE = 8
# The page in which the position of an answer that was not shown is looked up.
WIDE_PAGE: Mapping[str, Any] = {"limit": 60, "snippet_length": 1000}
NO_DATA = 2
# The states of a search with a model. A query that consists of quotations is compared by words.
_COMPARED = ("on", "not_applicable")
# The fields of a hit with text of the item. Each has a text, a list of texts, or a list of objects with such a field.
_TEXT_FIELDS = ("snippet", "snippets", "text", "passage", "passages")
_PUNCTUATION = str.maketrans(
    {**dict.fromkeys("‘’‚′", "'"), **dict.fromkeys("“”„″", '"'), **dict.fromkeys("‐‑‒–—−", "-")}
)
_INLINE_MARKUP = re.compile(r"[*_`\\]|</?\w+>")
_BLOCK_MARKUP = re.compile(r"[|#>\s]+")
_URI = re.compile(r"\b[a-z][a-z0-9+.-]*://\S+")


class InvalidQuestions(Exception):
    """The file of questions is not valid."""


class AnswerQuestion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A response answers the question if it shows one of the `answers`. `items` are the items that contain one."""

    ask: str
    answers: tuple[str, ...]
    items: tuple[str, ...] = ()
    own_words: bool = False

    def is_answered_by(self, text: str) -> bool:
        """Expects text from `normalise`. A part of a word or number does not count."""
        return any(
            re.search(rf"(?<![0-9a-z]){re.escape(normalise(answer))}(?![0-9a-z])", text) for answer in self.answers
        )


class QuestionSet(Struct, frozen=True):
    """The questions about the library of one user."""

    part: str
    owner: str
    questions: tuple[AnswerQuestion, ...]


class LibraryUser(Struct, frozen=True):
    """A user and an API key."""

    user_id: UserId
    key: str


class MissedAnswer(Struct, frozen=True):
    """Why the default response, with `page_hits` hits, does not show the answer. `position` is that of the first hit of
    a long page that shows it, and `item_position` that of the first hit of an item that contains it."""

    question: AnswerQuestion
    page_hits: int
    position: int | None
    item_position: int | None
    first_hits: tuple[str, ...]

    @property
    def cause(self) -> str:
        if self.position is None and self.item_position is None:
            return "not found"
        if self.position is None:
            return "another passage"
        return "text cut" if self.position <= self.page_hits else "ranked low"

    @property
    def place(self) -> str:
        """The hit that would show the answer, or at least its item."""
        place = self.position or self.item_position
        return "" if place is None else f", hit {place}"


class AnswerResult(Struct, frozen=True):
    """`is_answered` is for the default response, whose tokens are counted. `empty` counts hits without text in all
    three responses."""

    part: str
    is_answered: bool
    is_answered_by_search: bool
    is_answered_by_short_page: bool
    tokens: int
    empty: int
    missed: MissedAnswer | None = None


class Figures(Struct, frozen=True):
    answered: float
    answered_search: float
    answered_limit8: float
    tokens_p50: float
    empty: int

    @classmethod
    def of(cls, results: Sequence[AnswerResult]) -> "Figures":
        return cls(
            statistics.fmean(one.is_answered for one in results),
            statistics.fmean(one.is_answered_by_search for one in results),
            statistics.fmean(one.is_answered_by_short_page for one in results),
            statistics.median(one.tokens for one in results),
            sum(one.empty for one in results),
        )


# -- text --------------------------------------------------------------------------------------------------------------


def normalise(text: str) -> str:
    """Removes differences that do not matter to a reader: case, white space, typographic punctuation and markup."""
    folded = unicodedata.normalize("NFKC", text).casefold().translate(_PUNCTUATION)
    return _BLOCK_MARKUP.sub(" ", _INLINE_MARKUP.sub("", folded)).strip()


def hits_of(content: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    results: Sequence[Mapping[str, Any]] = content["results"]
    return results


def text_of(value: Any) -> str:
    """Returns the passages of a hit, without its title and metadata."""
    match value:
        case str():
            return value
        case list():
            return "\n".join(text_of(one) for one in value)
        case dict():
            return "\n".join(text_of(value[name]) for name in _TEXT_FIELDS if name in value)
        case _:
            return ""


def visible_text(text: str) -> str:
    """Returns the titles and passages that a response shows to a model, normalised.

    The text of a response is JSON or Markdown. Markdown is read as a whole, except for URIs. A repetition of the query
    does no harm, because no query contains its answer.
    """
    try:
        content = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return normalise(_URI.sub(" ", text))
    return normalise("\n".join(f"{hit.get('title', '')}\n{text_of(hit)}" for hit in hits_of(content)))


# -- the questions -----------------------------------------------------------------------------------------------------


def texts_of_demo(demo: DemoCollection) -> dict[str, str]:
    """Returns the normalised text of each item, by source/key."""

    def media_text(item: DemoMedia) -> str:
        return item.text + "\n".join(segment.text for segment in item.segments)

    texts = {f"notes/{item.key}": f"{item.title}\n{item.text}" for item in demo.notes}
    texts |= {f"media/{item.key}": f"{item.title}\n{media_text(item)}" for item in demo.media}
    texts |= {f"chats/{item.key}": "\n".join([item.title, *(text for _, text in item.messages)]) for item in demo.chats}
    texts |= {f"characters/{item.key}": text_of_fields(item) for item in demo.characters}
    texts |= {f"prompts/{item.key}": text_of_fields(item) for item in demo.prompts}
    return {name: normalise(text) for name, text in texts.items()}


def text_of_fields(item: DemoFields) -> str:
    return "\n".join(value for value in (item.key, *item.fields.values()) if isinstance(value, str))


def titles_of_demo(demo: DemoCollection) -> dict[tuple[str, str], str]:
    """Maps source and title of hits to names of items. Ids of characters and prompts depend on the library."""
    titles = {("notes", item.title): f"notes/{item.key}" for item in demo.notes}
    titles |= {("media", item.title): f"media/{item.key}" for item in demo.media}
    titles |= {("chats", item.title): f"chats/{item.key}" for item in demo.chats}
    titles |= {("characters", item.fields["name"]): f"characters/{item.key}" for item in demo.characters}
    return titles | {("prompts", item.fields["name"]): f"prompts/{item.key}" for item in demo.prompts}


def read_questions(path: Path = QUESTIONS) -> tuple[AnswerQuestion, ...]:
    """Reads the questions about the demo library. Every answer must be in the library, and in no other item than those
    listed, because it would otherwise be a matter of chance whether a response shows it."""
    try:
        questions = msgspec.toml.decode(path.read_bytes(), type=dict[str, tuple[AnswerQuestion, ...]])["question"]
    except (OSError, KeyError, msgspec.DecodeError) as error:
        raise InvalidQuestions(f"{path.name}: {error}") from error
    texts = texts_of_demo(read_demo())
    for question in questions:
        if question.is_answered_by(normalise(question.ask)):
            raise InvalidQuestions(f"{question.ask!r} contains its answer")
        found = {name for name, text in texts.items() if question.is_answered_by(text)}
        if not found or found != set(question.items):
            raise InvalidQuestions(f"{question.ask!r}: expected items {sorted(found)}, got {sorted(question.items)}")
        for answer in question.answers:
            if not any(AnswerQuestion(ask="", answers=(answer,)).is_answered_by(text) for text in texts.values()):
                raise InvalidQuestions(f"{question.ask!r}: no item contains {answer!r}")
    return questions


def choose_questions(dialogue: Dialogue) -> tuple[AnswerQuestion, ...]:
    """Chooses questions whose answer a response either shows or does not: those with one evidence turn which contains
    the answer literally, as no other turn and not the question does. At most `LOCOMO_MAX_PER_CONVERSATION`, evenly
    spread over the conversation's list."""
    texts = {turn.id: normalise(turn.text) for session in dialogue.sessions for turn in session}

    def qualifies(question: AnswerQuestion, evidence: Sequence[str]) -> bool:
        turns = [name for name, text in texts.items() if question.is_answered_by(text)]
        is_long_enough = len(normalise(question.answers[0])) >= LOCOMO_ANSWER_MIN_CHARS
        return is_long_enough and turns == list(evidence) and not question.is_answered_by(normalise(question.ask))

    judged = [(AnswerQuestion(ask=one.text, answers=(one.answer,)), one.evidence) for one in dialogue.questions]
    chosen = [question for question, evidence in judged if qualifies(question, evidence)]
    count = min(len(chosen), LOCOMO_MAX_PER_CONVERSATION)
    return tuple(chosen[index * len(chosen) // count] for index in range(count))


# -- the libraries -----------------------------------------------------------------------------------------------------


async def store(root: Path, dialogues: Sequence[Dialogue]) -> dict[str, LibraryUser]:
    """Creates a user with an API key for the demo library, and one for each dialogue. Returns them by name."""
    users: dict[str, LibraryUser] = {}
    async with open_runtime(Settings(data_dir=str(root), semantic_model=WORDS_ONLY)) as runtime:
        for owner in (DEMO, *(dialogue.id for dialogue in dialogues)):
            user = await runtime.registry.add_user(owner)
            _, key = await runtime.registry.create_key(user.id, "bench", (READ,))
            users[owner] = LibraryUser(user.id, key)
        for owner, dialogue in [(DEMO, None), *((one.id, one) for one in dialogues)]:
            user_id = users[owner].user_id
            principal = Principal(user_id, owner, ClientId("bench"), frozenset(SCOPES), "local", "bench")
            context = build_context(principal, runtime.data_root, "bench")
            async with runtime.libraries.library(context) as library:
                await (fill(library) if dialogue is None else _store_dialogue(library, dialogue))
    return users


async def _store_dialogue(library: Library, dialogue: Dialogue) -> None:
    """Each session is a conversation, as in `bench.retrieval`."""
    for session in dialogue.sessions:
        drafts = [MessageDraft(sender=turn.speaker, content=turn.text, created_at=turn.said_at) for turn in session]
        await library.chats.create(ConversationDraft(created_at=session[0].said_at), drafts)


@contextmanager
def start_server(root: Path, model: str) -> Iterator[str]:
    """Starts the command on a data directory, without rate limits and with deadlines for a busy machine."""
    options = {
        "require-auth": "true",
        "port": 0,
        "data-dir": root,
        "semantic-model": model,
        "log-level": "warning",
        "rate-user-per-minute": 0,
        "rate-tool-per-minute": 0,
        "search-deadline-ms": 60_000,
        "fanout-deadline-ms": 60_000,
        "semantic-timeout-ms": 60_000,
    }
    arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    command = python("server.cli", "serve", *arguments)
    cores = Cores.choose()
    with child(command, cores.servers | cores.others, root.with_suffix(".log")) as server:
        yield announced_mcp_url(server)


# -- asking ------------------------------------------------------------------------------------------------------------


class Asker:
    """Asks the questions of one user."""

    def __init__(self, url: str, key: str, model: str) -> None:
        self._client = DemoClient(url, key)
        self._research = DemoClient(f"{url}/research", key)
        self._model = model

    def ask(self, part: str, question: AnswerQuestion) -> AnswerResult:
        query = {"query": question.ask}
        default = self._client.call(ToolCall("knowledge_search", query))
        status = default.content["semantic"]
        is_compared = status["status"] in _COMPARED or status.get("reason") == UNKNOWN_WORDS
        if self._model != WORDS_ONLY and not is_compared:
            raise RuntimeError(f"expected a search by meaning, got {status} for {question.ask!r}")
        search = self._research.call(ToolCall("search", query))
        short_page = self._client.call(ToolCall("knowledge_search", {**query, "limit": SHORT_PAGE}))
        hits = [hit for response in (default, search, short_page) for hit in hits_of(response.content)]
        is_answered = question.is_answered_by(visible_text(default.text))
        return AnswerResult(
            part=part,
            is_answered=is_answered,
            is_answered_by_search=question.is_answered_by(visible_text(search.text)),
            is_answered_by_short_page=question.is_answered_by(visible_text(short_page.text)),
            tokens=count_tokens(default.text),
            empty=sum(not text_of(hit).strip() for hit in hits),
            missed=None if is_answered else self._diagnose(question, hits_of(default.content)),
        )

    def _diagnose(self, question: AnswerQuestion, page: Sequence[Mapping[str, Any]]) -> MissedAnswer:
        wide = hits_of(self._client.call(ToolCall("knowledge_search", {"query": question.ask, **WIDE_PAGE})).content)
        titles = titles_of_demo(read_demo())
        answering = [number for number, hit in enumerate(wide, 1) if question.is_answered_by(normalise(text_of(hit)))]
        of_items = [
            number
            for number, hit in enumerate(wide, 1)
            if titles.get((hit["source"], hit.get("title", ""))) in question.items
        ]
        first_hits = tuple(f"{hit['source']}, {hit.get('title', '')}: {text_of(hit)[:100]!r}" for hit in wide[:3])
        return MissedAnswer(question, len(page), min(answering, default=None), min(of_items, default=None), first_hits)


def measure(
    root: Path, users: Mapping[str, LibraryUser], sets: Sequence[QuestionSet], model: str
) -> tuple[AnswerResult, ...]:
    """Asks all questions with one model, a value of the setting `semantic_model`."""
    if model != WORDS_ONLY:
        ids = [user.user_id for user in users.values()]
        print(asyncio.run(embed_libraries(root, model, ids)), file=sys.stderr)
    with start_server(root, model) as url:
        return tuple(
            asker.ask(questions.part, question)
            for questions in sets
            for asker in [Asker(url, users[questions.owner].key, model)]
            for question in questions.questions
        )


# -- the report --------------------------------------------------------------------------------------------------------


def report(outcomes: Mapping[str, Sequence[AnswerResult]]) -> Iterator[str]:
    columns = ("questions", "answered", "search", "limit 8", "tokens p50", "empty")
    yield " ".join([f"{'':<16}", *(f"{name:>10}" for name in columns)])
    for name, results in outcomes.items():
        for part in (DEMO, LOCOMO):
            of_part = [one for one in results if one.part == part]
            if of_part:
                yield _row(f"{name}, {part}", of_part)
    if all(one.part == DEMO for results in outcomes.values() for one in results):
        yield "LoCoMo was not measured, because no folder was given (DATA=<folder>)."


def _row(title: str, results: Sequence[AnswerResult]) -> str:
    figures = Figures.of(results)
    shares = (figures.answered, figures.answered_search, figures.answered_limit8)
    cells = " ".join(f"{share:>10.4f}" for share in shares)
    return f"{title:<16} {len(results):>10} {cells} {figures.tokens_p50:>10.0f} {figures.empty:>10}"


def result_line(outcomes: Mapping[str, Sequence[AnswerResult]]) -> str:
    """The first figures are those of the last model, which is the best one. All are over both parts."""
    *_, best = outcomes.values()
    figures = Figures.of(best)
    of_models = " ".join(f"answered_{name}={Figures.of(results).answered:.4f}" for name, results in outcomes.items())
    return (
        f"RESULT answered={figures.answered:.4f} answered_search={figures.answered_search:.4f} "
        f"tokens_p50={figures.tokens_p50:.0f} empty_snippets={figures.empty} "
        f"answered_limit8={figures.answered_limit8:.4f} {of_models}"
    )


def list_missed(outcomes: Mapping[str, Sequence[AnswerResult]]) -> Iterator[str]:
    for name, results in outcomes.items():
        for part in (DEMO, LOCOMO):
            missed = [(one, one.missed) for one in results if one.part == part and one.missed is not None]
            for result, one in sorted(missed, key=lambda pair: pair[1].cause):
                short_page = ", answered with limit 8" if result.is_answered_by_short_page else ""
                yield f"{name}, {part}: {one.cause}{one.place}{short_page}: {one.question.ask}"
                yield f"    expected {' or '.join(map(repr, one.question.answers))}"
                yield from (f"    {number}. {hit}" for number, hit in enumerate(one.first_hits, 1))
            counts = Counter(one.cause for _, one in missed)
            causes = ", ".join(f"{cause} {count}" for cause, count in counts.most_common())
            if missed:
                yield f"{name}, {part}: {len(missed)} missed: {causes}"
                yield ""


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.answers", description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", help="folder that contains locomo/; without it: the demo only")
    parser.add_argument("--models", default=None, help="models to measure, separated by commas; default: all installed")
    parser.add_argument("--words-only", action="store_true", help="measure no model")
    parser.add_argument("--show-missed", action="store_true", help="list the questions that were not answered, and why")
    parser.add_argument("--questions", type=int, default=None, help="ask only this many questions per library")
    options = parser.parse_args(arguments)
    try:
        dialogues = read_dialogues(options.data) if options.data else ()
    except MissingDataset as error:
        print(error, file=sys.stderr)
        sys.exit(NO_DATA)
    sets = [
        QuestionSet(DEMO, DEMO, read_questions()[: options.questions]),
        *(QuestionSet(LOCOMO, one.id, choose_questions(one)[: options.questions]) for one in dialogues),
    ]
    chosen = installed_models() if options.models is None else [name for name in options.models.split(",") if name]
    models = {WORDS: WORDS_ONLY} | ({} if options.words_only else {name: name for name in chosen})
    outcomes: dict[str, tuple[AnswerResult, ...]] = {}
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        stored = Path(name, "stored")
        users = asyncio.run(store(stored, dialogues))
        for title, model in models.items():
            root = Path(shutil.copytree(stored, Path(name, title)))
            outcomes[title] = measure(root, users, sets, model)
    missed = list_missed(outcomes) if options.show_missed else ()
    for line in [*missed, *report(outcomes), result_line(outcomes)]:
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
