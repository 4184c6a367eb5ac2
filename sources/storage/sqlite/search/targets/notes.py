"""How notes are searched."""

from sources.records import Hit
from sources.storage.search.candidates import TextCandidate
from sources.storage.search.target import SearchTarget
from sources.storage.sqlite.vectors.kinds import NOTE_VECTORS
from sources.storage.tables.indexes import NOTES_INDEX


class NoteCandidate(TextCandidate, gc=False):
    @property
    def item_chars(self) -> int:
        return len(self.text)

    def hit(self) -> Hit:
        return self.make_hit(self.hit_text)


NOTES_TARGET = SearchTarget(
    table="notes",
    id_column="uuid",
    index=NOTES_INDEX,
    weights=(2.0, 1.0),
    title_column="title",
    candidate=NoteCandidate,
    candidate_sql="""
        SELECT r.uuid, r.title, r.tags, r.created_at, r.last_modified, r.version, r.content_hash,
            r.title_seg, r.content, r.content_seg
        FROM json_each(?) wanted CROSS JOIN notes r ON r.id = wanted.value
    """,
    vectors=(NOTE_VECTORS,),
)
