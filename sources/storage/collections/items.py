"""The collections of each kind of item, apart from chats, and of what belongs to a library besides items."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

import time
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from hashlib import sha256
from uuid import uuid4

from msgspec.structs import replace

from config.errors import NotFound
from sources.drafts import MediaDraft, NoteDraft, NoteImage, ObservationDraft, PromptDraft
from sources.records import (
    HitPage,
    ListPage,
    MediaChunk,
    MediaItem,
    Note,
    Observation,
    RegisteredAgent,
    SavedPrompt,
    Segment,
    SemanticStatus,
)
from sources.storage.collections.collection import ItemCollection, UserDatabase, read_method, write_method
from sources.storage.contract import ALL_OBSERVATIONS, Corpus, ObservationFilter, Search
from sources.storage.search.engine import QueryVector
from sources.storage.search.text_search import NOT_APPLICABLE, search_relaxed
from sources.storage.tables import sql, validation
from sources.storage.tables.conversation_tables import MEDIA_ITEMS
from sources.storage.tables.item_table import WriteContext
from sources.storage.tables.kind_tables import NOTES, OBSERVATIONS, PROMPTS, observation_conditions
from sources.storage.tables.upsert import rows_by_uuid
from sources.storage.tables.validation import COUNT_MAX, clamp_count, is_storable

# -- notes -------------------------------------------------------------------------------------------------------------
# Notes: a title and a text, and the images that the text shows.

_STORED_IMAGES = (
    "SELECT n.uuid, i.name, i.digest FROM {} CROSS JOIN notes n JOIN note_images i ON i.note = n.id "
    "WHERE n.uuid = wanted.value"
)
_DELETE_IMAGE = sql.Delete("note_images", "note = ? AND name = ?")
_INSERT_IMAGE = sql.Insert("note_images", "note, name, media_type, digest, data")
_IMAGES = "FROM note_images i JOIN notes n ON n.id = i.note WHERE n.uuid = ? AND n.deleted = 0"


class Notes(ItemCollection[Note, NoteDraft, str]):
    source = "notes"
    table = NOTES

    async def append(
        self,
        item_id: str,
        text: str,
        expected_version: int | None = None,
        *,
        separator: str = "",
        idempotency_key: str | None = None,
    ) -> Note:
        """Appends a text to the content, after `separator` unless the content is empty or already ends with it."""
        addition = validation.long_text(self._settings.limits, "text", text)

        def work(connection: sql.SqlConnection, context: WriteContext) -> Note:
            def write() -> Sequence[str]:
                content: str = self.table.stored_values(connection, item_id)["content"]
                between = "" if not content or content.endswith(separator) else separator
                draft = NoteDraft(content=f"{content}{between}{addition}")
                self.table.update(connection, item_id, draft, expected_version, context)
                return [item_id]

            request = ("append", item_id, addition, expected_version)
            [uuid] = self._run_once(connection, idempotency_key, request, write)
            return self.table.get_by_uuid(connection, uuid)

        return await self._write(work)

    async def known_ids(self, item_ids: Sequence[str]) -> Set[str]:
        """Returns those of the ids that a note has, or had before it was deleted."""
        storable = [item_id for item_id in item_ids if validation.is_storable(item_id)]
        return await self._read(lambda connection: rows_by_uuid(connection, self.table.name, storable).keys())

    async def set_images(self, images: Mapping[str, Sequence[NoteImage]]) -> None:
        """Replaces the images of these notes, within the user's quota. Ids of notes that do not exist are ignored."""
        digests = {uuid: [sha256(image.data).hexdigest() for image in some] for uuid, some in images.items()}

        def work(connection: sql.SqlConnection, _: WriteContext) -> None:
            rows = rows_by_uuid(connection, self.table.name, list(images))
            statement = _STORED_IMAGES.format(connection.dialect.listed())
            stored: dict[tuple[str, str], str] = {
                (uuid, name): digest
                for uuid, name, digest in connection.execute(statement, (sql.json_array(list(images)),)).fetchall()
            }
            current = {
                (uuid, image.name): (image, digest)
                for uuid, some in images.items()
                if uuid in rows and not rows[uuid].is_deleted
                for image, digest in zip(some, digests[uuid], strict=True)
            }
            for (uuid, name), digest in stored.items():
                if (uuid, name) not in current or current[uuid, name][1] != digest:
                    connection.execute(_DELETE_IMAGE, (rows[uuid].rowid, name))
            for (uuid, name), (image, digest) in current.items():
                if stored.get((uuid, name)) != digest:
                    connection.execute(_INSERT_IMAGE, (rows[uuid].rowid, name, image.media_type, digest, image.data))

        await self._write(work, 0)

    @read_method
    def image_names(self, connection: sql.SqlConnection, item_id: str) -> Sequence[str]:
        """Returns the names of a note's images, none if the note does not exist."""
        if not validation.is_storable(item_id):
            return ()
        rows = connection.execute(f"SELECT i.name {_IMAGES} ORDER BY i.name", (item_id,))
        return [name for (name,) in rows.fetchall()]

    async def image(self, item_id: str, name: str) -> NoteImage:
        def work(connection: sql.SqlConnection) -> NoteImage:
            statement = f"SELECT i.name, i.media_type, i.data {_IMAGES} AND i.name = ?"
            row = connection.execute(statement, (item_id, name)).fetchone()
            if row is None:
                raise NotFound("image", name[:200])
            return NoteImage(row[0], row[1], bytes(row[2]))

        if not validation.is_storable(item_id) or not validation.is_storable(name):
            raise NotFound("image", name[:200])
        return await self._read(work)


# -- observations ------------------------------------------------------------------------------------------------------
# Observations: what was learned in sessions, filtered by values. They are not a source.


class Observations(ItemCollection[Observation, ObservationDraft, str]):
    """A search over all sources does not include them, and they do not affect how terms are weighted there."""

    source = "observations"
    table = OBSERVATIONS

    async def search(self, search: Search, where: ObservationFilter = ALL_OBSERVATIONS) -> HitPage:
        """Returns nothing for a query without words; use `list` instead. Terms are weighted by the library and the
        observations together."""
        conditions = observation_conditions(where, "r.id", "r.created_at")
        if search.query.expression is None or conditions is None:
            return HitPage((), has_more=False, total=0, semantic=NOT_APPLICABLE)

        statistics = self._statistics

        def work(meaning: QueryVector | SemanticStatus, connection: sql.SqlConnection) -> HitPage:
            def run(reading: Search) -> HitPage:
                is_by_words = reading.ranking != "meaning"
                corrected = self._correct(connection, self.text_search(connection, reading)) if is_by_words else None
                if corrected is not None:
                    reading = replace(reading, query=corrected, corpus=None)
                # How common the terms are in the library and the observations together.
                terms, index = reading.query.terms, self.target.index
                library = reading.corpus or statistics.corpus(reading.query, connection)
                rows = statistics.count_rows(connection, index)
                matches = list(map(statistics.engine.compiler(), [term.word for term in terms]))
                own = statistics.count_each(connection, index, matches)
                frequencies = tuple(map(sum, zip(library.frequencies, own, strict=True)))
                weighted = replace(reading, corpus=Corpus(library.rows + rows, frequencies))
                page = self.text_search(connection, weighted, None, meaning, conditions).run()
                return page if corrected is None or page.total == 0 else replace(page, query=corrected)

            def has_match(reading: Search) -> bool:
                return self.text_search(connection, reading, extra_filter=conditions).has_match()

            return search_relaxed(search, has_match, run)

        return await self._search_with_meaning(search, lambda meaning: partial(work, meaning))

    async def list(self, limit: int, offset: int, where: ObservationFilter = ALL_OBSERVATIONS) -> ListPage[Observation]:
        """Returns a page of observations, newest `created_at` first."""
        conditions = observation_conditions(where, "id", "created_at")
        if conditions is None:
            return ListPage((), 0)
        condition, parameters = f"TRUE{conditions.sql}", conditions.parameters
        return await self._read(
            lambda connection: self.table.page(connection, limit, offset, condition, parameters, "created_at")
        )

    @read_method
    def get_many(self, connection: sql.SqlConnection, observation_ids: Sequence[str]) -> Sequence[Observation]:
        """Returns the observations that exist, in the order of the ids."""
        uuids = [uuid for uuid in dict.fromkeys(observation_ids) if is_storable(uuid)]
        rows = self.table.select(connection, f"uuid IN ({sql.placeholders(uuids)})", uuids)
        by_uuid = {row.uuid: row for row in rows}
        return [by_uuid[uuid] for uuid in uuids if uuid in by_uuid]


# -- prompts -----------------------------------------------------------------------------------------------------------
# Prompts: named texts with arguments.


class Prompts(ItemCollection[SavedPrompt, PromptDraft, int]):
    source = "prompts"
    table = PROMPTS

    async def get_by_name(self, name: str) -> SavedPrompt:
        """Returns the prompt of this exact name, or else one whose name differs only in case. Of several, the one
        modified last."""
        return await self._read(lambda connection: self._by_name(connection, name))

    def _by_name(self, connection: sql.SqlConnection, name: str) -> SavedPrompt:
        condition = (
            f"{connection.dialect.is_same_name('name', '?1')} ORDER BY name = ?1 DESC, last_modified DESC, id DESC"
        )
        return self.table.get_first(connection, f"{condition} LIMIT 1", name)

    async def save(
        self, draft: PromptDraft, expected_version: int | None = None, *, idempotency_key: str | None = None
    ) -> SavedPrompt:
        """Updates the prompt that `get_by_name` returns, or creates one. An expected version of 0 means that no prompt
        of this name exists yet."""
        name = validation.required_short_text(self._settings.limits, "name", draft.name)

        def work(connection: sql.SqlConnection, context: WriteContext) -> SavedPrompt:
            def write() -> Sequence[str]:
                try:
                    prompt = self._by_name(connection, name)
                except NotFound:
                    if expected_version:
                        raise
                    rowid = self.table.insert(connection, draft, context)
                else:
                    rowid = self.table.update(connection, prompt.id, draft, expected_version, context)
                return [self.table.get_by_rowid(connection, rowid).uuid]

            [uuid] = self._run_once(connection, idempotency_key, ("save", draft, expected_version), write)
            return self.table.get_by_uuid(connection, uuid)

        return await self._write(work, 1, may_exist=True)


# -- bookmarks ---------------------------------------------------------------------------------------------------------
# Import positions, stored next to the items that were imported, and leases on reading what they belong to.

# The table `state` also holds values of the library itself.
_PREFIX = "bookmark:"
_LEASE_PREFIX = "import lease:"


class Bookmarks:
    """Texts by name: positions in external files and databases up to which they have been imported, and the searches
    that a person has saved. A lease says who reads a file or database at the moment."""

    source = "bookmarks"

    def __init__(self, database: UserDatabase, limits: validation.FieldLimits) -> None:
        self._database = database
        self._limits = limits

    @read_method
    def get(self, connection: sql.SqlConnection, name: str) -> str | None:
        if not validation.is_storable(name):
            return None
        row = connection.execute("SELECT value FROM state WHERE name = ?", (_PREFIX + name,)).fetchone()
        return row[0] if row else None

    async def set(self, name: str, text: str) -> None:
        await self.change(name, lambda _: text)

    @write_method
    def change(self, connection: sql.SqlConnection, name: str, change: Callable[[str | None], str]) -> None:
        """Replaces a text in one transaction. What `change` raises leaves it as it is."""
        key = _PREFIX + validation.required_short_text(self._limits, "name", name)
        row = connection.execute("SELECT value FROM state WHERE name = ?", (key,)).fetchone()
        value = validation.long_text(self._limits, "text", change(row[0] if row else None))
        connection.execute(sql.SAVE_STATE, (key, value))

    @write_method
    def claim(
        self, connection: sql.SqlConnection, name: str, owner: str, lifetime_s: float, *, instead_of: str = ""
    ) -> str:
        """Takes or extends a lease that one owner at a time has, or takes over that of `instead_of`. Returns the owner,
        which is another one if the lease is held."""
        key = _LEASE_PREFIX + validation.required_short_text(self._limits, "name", name)
        # The transaction locks the library, so that two processes never both find the lease free.
        row = connection.execute("SELECT value FROM state WHERE name = ?", (key,)).fetchone()
        end, _, holder = row[0].partition(" ") if row else ("0", "", "")
        if holder not in (owner, instead_of) and float(end) > time.time():
            return holder
        connection.execute(sql.SAVE_STATE, (key, f"{time.time() + lifetime_s:.3f} {owner}"))
        return owner

    @write_method
    def release(self, connection: sql.SqlConnection, name: str, owner: str) -> None:
        row = connection.execute("SELECT value FROM state WHERE name = ?", (_LEASE_PREFIX + name,)).fetchone()
        if row and row[0].partition(" ")[2] == owner:
            connection.execute(sql.Delete("state", "name = ?"), (_LEASE_PREFIX + name,))


# -- agents ------------------------------------------------------------------------------------------------------------
# The agents on the message bus, which are stored in the library of their user.

_INSERT = sql.Insert("agents", "id, name, token_hash, used_at")
_SELECT = "SELECT id, name, token_hash, used_at FROM agents WHERE id = ?"
# All but the `limit` most recently used agents.
_DELETE_LEAST_RECENTLY_USED = sql.Delete(
    "agents", f"id IN (SELECT id FROM agents ORDER BY used_at DESC, id DESC LIMIT {COUNT_MAX} OFFSET ?)"
)


class Agents:
    """Times are in the stored form."""

    source = "agents"

    def __init__(self, database: UserDatabase, limits: validation.FieldLimits) -> None:
        self._database = database
        self._limits = limits

    @write_method
    def register(
        self, connection: sql.SqlConnection, name: str, token_hash: bytes, *, time: str, idle_since: str, limit: int
    ) -> RegisteredAgent:
        """Adds an agent with a new id. If the name is in use, a number is appended. First removes agents that were last
        used before `idle_since`, and the least recently used ones if there are `limit` agents or more."""
        name = validation.required_short_text(self._limits, "name", name)
        connection.execute(sql.Delete("agents", "used_at < ?"), (idle_since,))
        connection.execute(_DELETE_LEAST_RECENTLY_USED, (max(0, limit - 1),))
        taken = {row[0] for row in connection.execute("SELECT name FROM agents")}
        names = (name if number == 1 else f"{name} {number}" for number in range(1, len(taken) + 2))
        unused = next(one for one in names if one not in taken)
        agent = RegisteredAgent(id=str(uuid4()), name=unused, token_hash=token_hash, used_at=time)
        connection.execute(_INSERT, (agent.id, agent.name, agent.token_hash, agent.used_at))
        return agent

    @read_method
    def find(self, connection: sql.SqlConnection, agent_id: str) -> RegisteredAgent | None:
        if not is_storable(agent_id):
            return None
        row = connection.execute(_SELECT, (agent_id,)).fetchone()
        return RegisteredAgent(**dict(zip(RegisteredAgent.__struct_fields__, row, strict=True))) if row else None

    @write_method
    def set_used(self, connection: sql.SqlConnection, agent_id: str, time: str) -> None:
        connection.execute(sql.Update("agents", "used_at = ?1", "id = ?2 AND used_at < ?1"), (time, agent_id))


# -- media -------------------------------------------------------------------------------------------------------------
# Media: long texts, stored whole and in chunks, and the timed segments of transcripts.

_CHUNKS = f"""
    SELECT id & {sql.CHUNKS_MAX - 1}, uuid, text, start, "end", start_ms, end_ms, speaker
    FROM chunks WHERE id >= ?1 AND id < ?2
"""
_CHUNK_BY_UUID = f"{_CHUNKS} AND uuid = ?3"
# The last chunk that starts at or before a character, or the first chunk if all start after it.
_CHUNK_AT = f"{_CHUNKS} ORDER BY start > ?3, CASE WHEN start > ?3 THEN start ELSE -start END LIMIT 1"
_SEGMENTS = """
    SELECT start_ms, end_ms, text, speaker FROM segments WHERE media_id = ? AND end_ms >= ? AND start_ms <= ?
    ORDER BY position
"""

# Beyond the longest text that SQLite can store; `substr` takes 32-bit numbers.
_TEXT_END = 1 << 30


class Media(ItemCollection[MediaItem, MediaDraft, int]):
    source = "media"
    table = MEDIA_ITEMS

    async def get_by_uuid(self, uuid: str) -> MediaItem:
        return await self._read(lambda connection: self.table.get_by_uuid(connection, uuid))

    @read_method
    def content(self, connection: sql.SqlConnection, item_id: int, start: int = 0, length: int | None = None) -> str:
        length = _TEXT_END if length is None else min(clamp_count(length), _TEXT_END)
        parameters = (item_id, min(clamp_count(start), _TEXT_END) + 1, length)
        self.table.get(connection, item_id)
        [text] = connection.execute("SELECT substr(content, ?2, ?3) FROM texts WHERE id = ?1", parameters).fetchone()
        return str(text)

    @read_method
    def chunks(self, connection: sql.SqlConnection, item_id: int, first: int, count: int) -> Sequence[MediaChunk]:
        first = min(clamp_count(first), sql.CHUNKS_MAX)
        end = min(first + clamp_count(count), sql.CHUNKS_MAX)
        self.table.get(connection, item_id)
        base = item_id << sql.CHUNK_BITS
        rows = connection.execute(f"{_CHUNKS} ORDER BY id", (base + first, base + end))
        return [_chunk(*row) for row in rows]

    async def chunk_by_uuid(self, item_id: int, uuid: str) -> MediaChunk:
        return await self._read(lambda connection: self._get_chunk(connection, item_id, _CHUNK_BY_UUID, uuid))

    async def chunk_at(self, item_id: int, offset: int) -> MediaChunk:
        """Returns the chunk that contains the character at `offset`, or the nearest one."""
        return await self._read(lambda connection: self._get_chunk(connection, item_id, _CHUNK_AT, offset))

    @read_method
    def segments(
        self, connection: sql.SqlConnection, item_id: int, from_ms: int | None = None, to_ms: int | None = None
    ) -> Sequence[Segment]:
        """Returns the transcript lines that overlap the time range, inclusive."""
        start_ms = clamp_count(from_ms or 0)
        end_ms = COUNT_MAX if to_ms is None else clamp_count(to_ms)
        self.table.get(connection, item_id)
        rows = connection.execute(_SEGMENTS, (item_id, start_ms, end_ms))
        return [Segment(start_ms=start, end_ms=end, text=text, speaker=speaker) for start, end, text, speaker in rows]

    async def types(self) -> Mapping[str, int]:
        """Returns the number of items of each media type."""
        statement = "SELECT media_type, count(*) FROM media WHERE deleted = 0 GROUP BY media_type ORDER BY 2 DESC, 1"
        return await self._read(lambda connection: dict(connection.execute(statement).fetchall()))

    def _get_chunk(self, connection: sql.SqlConnection, item_id: int, statement: str, key: str | int) -> MediaChunk:
        self.table.get(connection, item_id)
        base = item_id << sql.CHUNK_BITS
        row = connection.execute(statement, (base, base + sql.CHUNKS_MAX, key)).fetchone() if is_storable(key) else None
        if row is None:
            raise NotFound("chunk", str(key))
        return _chunk(*row)


def _chunk(
    index: int,
    uuid: str,
    text: str,
    start: int,
    end: int,
    start_ms: int | None,
    end_ms: int | None,
    speaker: str | None,
) -> MediaChunk:
    """Takes the columns of `_CHUNKS`."""
    return MediaChunk(
        index=index, uuid=uuid, text=text, start=start, end=end, start_ms=start_ms, end_ms=end_ms, speaker=speaker
    )
