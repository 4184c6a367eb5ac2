"""Bibliographic references, as media items."""

from typing import Any

from msgspec import UNSET, Struct

from config.text import replace_unstorable
from sources.drafts import MediaDraft
from sources.importers.engine.imported_items import stable_uuid
from sources.importers.engine.table_reader import compact_metadata, url_or_empty
from sources.importers.engine.times import stored_date
from sources.importers.engine.values import clean_line, clean_tags, short_title


class BibliographicReference(Struct, frozen=True):
    """`date` is the date of publication as ISO 8601, or as written; `fields` are the remaining ones."""

    key: str
    type: str
    title: str
    authors: tuple[str, ...] = ()
    date: str = ""
    publication: str = ""
    abstract: str = ""
    notes: tuple[str, ...] = ()
    url: str = ""
    doi: str = ""
    tags: tuple[str, ...] = ()
    fields: dict[str, Any] = {}


def reference_draft(importer: str, reference: BibliographicReference) -> MediaDraft:
    doi = reference.doi.removeprefix("https://doi.org/")
    url = url_or_empty(reference.url) or (f"https://doi.org/{doi}" if doi else "")
    return MediaDraft(
        title=short_title(reference.title),
        media_type="reference",
        author=short_title("; ".join(reference.authors)),
        url=url or UNSET,
        content=replace_unstorable("\n\n".join(_parts(reference))),
        tags=clean_tags([clean_line(tag) for tag in reference.tags]),
        metadata=compact_metadata(
            type=reference.type, date=reference.date, publication=reference.publication, doi=doi, **reference.fields
        ),
        uuid=stable_uuid(importer, "media", reference.key),
        created_at=stored_date(reference.date) or UNSET,
    )


def _parts(reference: BibliographicReference) -> list[str]:
    """Returns the citation, the abstract and the notes."""
    year = f" ({reference.date[:4]})" if reference.date else ""
    authors = f"{'; '.join(reference.authors)}{year}. " if reference.authors else ""
    publication = f" {reference.publication}." if reference.publication else ""
    citation = f"{authors}{reference.title.rstrip('.')}.{publication}"
    return [part for part in (citation, reference.abstract.strip(), *reference.notes) if part]
