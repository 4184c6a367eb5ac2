"""How prompts are searched: by any of their fields."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from sources.storage.search.candidates import NamedFieldsCandidate
from sources.storage.search.target import SearchTarget
from sources.storage.sqlite.vectors.kinds import PROMPT_VECTORS
from sources.storage.tables.indexes import PROMPTS_INDEX
from sources.storage.tables.item_table import decode_texts


class PromptCandidate(NamedFieldsCandidate, gc=False):
    """The title is the name of the prompt."""

    has_authors = True
    embedded = PROMPT_VECTORS.texts

    author: str
    details: str
    system_prompt: str
    user_prompt: str

    def fields(self) -> dict[str, str]:
        return {
            "details": self.details,
            "system_prompt": self.system_prompt,
            "user_prompt": self.user_prompt,
            "author": self.author,
            "keywords": ", ".join(decode_texts(self.tags)),
        }

    @property
    def author_name(self) -> str:
        return self.author

    @property
    def item_chars(self) -> int:
        return sum(map(len, (self.author, self.details, self.system_prompt, self.user_prompt)))


_CANDIDATE_FIELDS = ("author", "details", "system_prompt", "user_prompt")
_BODY = " || ' ' || ".join(f"coalesce(r.{name}_seg, r.{name})" for name in (*_CANDIDATE_FIELDS, "tags"))

PROMPTS_TARGET = SearchTarget(
    table="prompts",
    id_column="id",
    index=PROMPTS_INDEX,
    weights=(2.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    title_column="name",
    candidate=PromptCandidate,
    candidate_sql=f"""
        SELECT r.id, r.name, r.tags, r.created_at, r.last_modified, r.version, r.content_hash,
            r.name_seg, {_BODY}, {", ".join(f"r.{name}" for name in _CANDIDATE_FIELDS)}
        FROM json_each(?) wanted CROSS JOIN prompts r ON r.id = wanted.value
    """,
    vectors=(PROMPT_VECTORS,),
)
