"""Notes: a title and a text, and the images that the text shows."""

from collections.abc import Mapping, Sequence, Set
from hashlib import sha256

from config.errors import NotFound
from sources.drafts import NoteDraft, NoteImage
from sources.records import Note
from sources.storage.collections.collection import StoredItems
from sources.storage.tables import validation
from sources.storage.tables.connection import SqlConnection
from sources.storage.tables.item_table import WriteContext
from sources.storage.tables.note_table import NOTES
from sources.storage.tables.sql import json_array
from sources.storage.tables.upsert import rows_by_uuid

_STORED_IMAGES = (
    "SELECT n.uuid, i.name, i.digest FROM json_each(?) wanted CROSS JOIN notes n ON n.uuid = wanted.value "
    "JOIN note_images i ON i.note = n.id"
)
_DELETE_IMAGE = "DELETE FROM note_images WHERE note = ? AND name = ?"
_INSERT_IMAGE = "INSERT INTO note_images (note, name, media_type, digest, data) VALUES (?, ?, ?, ?, ?)"
_IMAGES = "FROM note_images i JOIN notes n ON n.id = i.note WHERE n.uuid = ? AND n.deleted = 0"


class StoredNotes(StoredItems[Note, NoteDraft, str]):
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
        addition = validation.long_text(self._settings.limits, "text", text)

        def work(connection: SqlConnection, context: WriteContext) -> Note:
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
        storable = [item_id for item_id in item_ids if validation.is_storable(item_id)]
        return await self._read(lambda connection: rows_by_uuid(connection, self.table.name, storable).keys())

    async def set_images(self, images: Mapping[str, Sequence[NoteImage]]) -> None:
        digests = {uuid: [sha256(image.data).hexdigest() for image in some] for uuid, some in images.items()}

        def work(connection: SqlConnection, _: WriteContext) -> None:
            rows = rows_by_uuid(connection, self.table.name, list(images))
            stored: dict[tuple[str, str], str] = {
                (uuid, name): digest
                for uuid, name, digest in connection.execute(_STORED_IMAGES, (json_array(list(images)),)).fetchall()
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

    async def image_names(self, item_id: str) -> Sequence[str]:
        if not validation.is_storable(item_id):
            return ()

        def work(connection: SqlConnection) -> Sequence[str]:
            rows = connection.execute(f"SELECT i.name {_IMAGES} ORDER BY i.name", (item_id,))
            return [name for (name,) in rows.fetchall()]

        return await self._read(work)

    async def image(self, item_id: str, name: str) -> NoteImage:
        def work(connection: SqlConnection) -> NoteImage:
            sql = f"SELECT i.name, i.media_type, i.data {_IMAGES} AND i.name = ?"
            row = connection.execute(sql, (item_id, name)).fetchone()
            if row is None:
                raise NotFound("image", name[:200])
            return NoteImage(row[0], row[1], bytes(row[2]))

        if not validation.is_storable(item_id) or not validation.is_storable(name):
            raise NotFound("image", name[:200])
        return await self._read(work)
