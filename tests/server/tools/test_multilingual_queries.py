"""The multilingual set of typed queries, run through the search of notes."""

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from tests.live import NO_RATE_LIMITS
from tests.server.rest.rest_client import open_rest_client

_SET: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "typed_queries.toml").read_text())
_KINDS = {"typo", "quote", "compound", "spelling", "date"}


def test_set_covers_every_kind_in_many_languages() -> None:
    assert len(_SET) >= 12
    assert all(len(language["queries"]) >= 10 for language in _SET.values())
    assert {kind for language in _SET.values() for kind, _, _ in language["queries"]} >= _KINDS


async def test_first_hit_of_every_query_is_the_note_that_was_meant(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, search_deadline_ms=60_000, **NO_RATE_LIMITS) as api:
        ada = await api.library_user("ada")
        names: dict[str, str] = {}
        for code, language in _SET.items():
            for name, (title, text, day) in ((name, note) for name, note in language.items() if name != "queries"):
                note = await ada.add_note(title, text, created_at=f"{day}T12:00:00.000Z")
                names[f"notes://{note}"] = f"{code} {name}"
        missed: Counter[str] = Counter()
        for code, language in _SET.items():
            for kind, query, meant in language["queries"]:
                hits = await ada.search("notes_search", query, limit=3)
                found = [names[hit["uri"]] for hit in hits]
                if found[:1] != [f"{code} {meant}"]:
                    missed[f"{code} {kind}: {query}, found {found}"] += 1

    assert not missed
