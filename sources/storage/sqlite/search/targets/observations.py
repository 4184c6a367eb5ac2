"""How observations are searched."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from sources.records import Hit
from sources.storage.search.candidates import FieldsCandidate
from sources.storage.search.target import SearchTarget
from sources.storage.sqlite.vectors.kinds import OBSERVATION_VECTORS
from sources.storage.tables.indexes import OBSERVATION_FIELDS, OBSERVATIONS_INDEX
from sources.storage.tables.item_table import decode_texts
from sources.storage.tables.observation_table import OBSERVATION_LISTS


class ObservationCandidate(FieldsCandidate, gc=False):
    subtitle: str
    narrative: str
    facts: str

    @property
    def item_chars(self) -> int:
        return len(self._text)

    def hit(self) -> Hit:
        return self.make_hit(self._text or self.title)

    @property
    def _text(self) -> str:
        return "\n".join(part for part in (self.subtitle, self.narrative, *decode_texts(self.facts)) if part)


# Qualified, because `json_each` also has a column `type`.
_BODY = " || char(10) || ".join(f"r.{name}" for name in OBSERVATION_FIELDS)

# A control character between the values keeps a text from matching across two of them. Lists are JSON.
_LITERAL_TEXT = " || char(1) || ".join(
    f"(SELECT coalesce(group_concat(value, char(1)), '') FROM json_each(r.{name}))"
    if name in OBSERVATION_LISTS
    else f"r.{name}"
    for name in ("title", *OBSERVATION_FIELDS)
)

OBSERVATIONS_TARGET = SearchTarget(
    table="observations",
    id_column="uuid",
    index=OBSERVATIONS_INDEX,
    weights=(2.0, 1.0),
    title_column="title",
    candidate=ObservationCandidate,
    candidate_sql=f"""
        SELECT r.uuid, r.title, r.tags, r.created_at, r.last_modified, r.version, r.content_hash,
            r.title_seg, coalesce(r.body_seg, {_BODY}), r.subtitle, r.narrative, r.facts
        FROM json_each(?) wanted CROSS JOIN observations r ON r.id = wanted.value
    """,
    literal_text=_LITERAL_TEXT,
    vectors=(OBSERVATION_VECTORS,),
)
