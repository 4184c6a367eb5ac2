"""Character cards of versions 1, 2 and 3: as JSON, in the text chunks of a PNG, in a WebP, or in a charx archive.

Every field of a card is kept: known ones as fields of the character, all others unchanged in `card`. Images, sounds and
other assets are not read.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import UNSET

from config.errors import InvalidParams, TooLarge
from sources.drafts import CharacterDraft
from sources.importers.engine.archives import is_zip, open_archive
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import ImportedCharacter, file_key, file_size, read_bytes, stable_uuid
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.markdown_text import split_words
from sources.importers.engine.png_texts import SIGNATURE, is_webp, keywords, read_exif, read_text_chunk
from sources.importers.engine.values import clean_tags, parse_json, short_title, stored_time

# A PNG may contain both; the newer version has more fields.
_PNG_KEYWORDS = ("ccv3", "chara")
_CARD_IN_CHARX = "card.json"
_HEAD_BYTES = 16
_UTF16_COMMENT = b"UNICODE\0"
_PROBE_MAX_BYTES = 4 << 20
_SPEC = re.compile(rb'"spec"\s*:\s*"chara_card_v\d+"')
# The text fields of a character, and their names in cards.
_TEXT_FIELDS = {
    "description": "description",
    "personality": "personality",
    "scenario": "scenario",
    "first_message": "first_mes",
    "message_example": "mes_example",
    "system_prompt": "system_prompt",
    "post_history_instructions": "post_history_instructions",
    "creator_notes": "creator_notes",
    "creator": "creator",
    "character_version": "character_version",
    "nickname": "nickname",
}
_SHORT_FIELDS = ("creator", "character_version", "nickname")
_GREETING_FIELDS = ("alternate_greetings", "group_only_greetings")


class CharacterCardsImporter(Importer):
    name = "character_cards"
    title = "Character cards (JSON, PNG, WebP, charx)"
    suffixes = (".json", ".png", ".apng", ".webp", ".charx")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 0.0
        if probe.head.startswith(SIGNATURE):
            return 1.0 if any(keyword in _PNG_KEYWORDS for keyword in keywords(probe.path)) else 0.0
        if is_webp(probe.head):
            with suppress(InvalidParams, TooLarge, OSError):
                return 1.0 if b'"name"' in _read_webp_card(probe.path, _PROBE_MAX_BYTES) else 0.0
            return 0.0
        if is_zip(probe.head):
            # An archive without a readable directory is a damaged card if its suffix says so, and is reported as one.
            is_damaged = not probe.names and probe.path.suffix.lower() == ".charx"
            return 0.9 if _CARD_IN_CHARX in probe.names or is_damaged else 0.0
        if not probe.head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
            return 0.0
        if _SPEC.search(probe.head):
            return 1.0
        return 0.7 if b'"first_mes"' in probe.head and b'"name"' in probe.head else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        card = parse_json(_read_card(path, limits), limits)
        yield ImportedCharacter(_character_draft(card, file_key(path, limits)))
        progress(file_size(path))


IMPORTER = CharacterCardsImporter()


def _read_card(path: Path, limits: ImportLimits) -> bytes:
    """Returns the JSON of a card."""
    with open_file(path) as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(SIGNATURE):
        for keyword in _PNG_KEYWORDS:
            text = read_text_chunk(path, keyword, limits.line_max_bytes)
            if text is not None:
                # Decodes base64, which the specifications require but some programs omit.
                if text.lstrip().startswith(b"{"):
                    return text
                try:
                    return b64decode(text, validate=False)
                except Base64Error as error:
                    raise InvalidParams("the character card in the PNG is not valid base64") from error
        raise InvalidParams("PNG contains no character card (no text chunk named chara or ccv3)")
    if is_webp(head):
        return _read_webp_card(path, limits.line_max_bytes)
    if is_zip(head):
        with open_archive(path, limits) as archive:
            return archive.read(_CARD_IN_CHARX, limits.line_max_bytes)
    return read_bytes(path, limits.line_max_bytes)


def _read_webp_card(path: Path, max_bytes: int) -> bytes:
    """Returns the JSON that TavernAI writes into the user comment of the image. It is found by its braces, because
    versions of TavernAI encode that field differently."""
    exif = read_exif(path, max_bytes) or b""
    marker = exif.find(_UTF16_COMMENT)
    if marker >= 0:
        exif = exif[marker + len(_UTF16_COMMENT) :].replace(b"\0", b"")
    # The outermost braces of the text.
    start, end = exif.find(b"{"), exif.rfind(b"}")
    if start < 0 or end < start:
        raise InvalidParams("WebP contains no character card")
    return exif[start : end + 1]


def _character_draft(card: Any, key: str) -> CharacterDraft:
    if not isinstance(card, Mapping):
        raise InvalidParams("character card: expected a JSON object")
    data = card.get("data") if isinstance(card.get("data"), Mapping) else card
    assert isinstance(data, Mapping)
    name = data.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidParams(f"name: expected the name of the character, got {repr(name)[:60]}")
    fields = {ours: data[theirs] for ours, theirs in _TEXT_FIELDS.items() if isinstance(data.get(theirs), str)}
    fields |= {field: short_title(fields[field]) for field in _SHORT_FIELDS if field in fields}
    # What the character's own fields do not hold unchanged: unknown fields, and known ones that were shortened. Version
    # 2 cards often repeat the fields of version 1 next to `data`; these repetitions are dropped.
    remaining = {field: value for field, value in data.items() if not _is_kept_unchanged(field, value)}
    if data is not card:
        remaining |= {field: value for field, value in card.items() if field != "data" and data.get(field) != value}
    return CharacterDraft(
        name=short_title(name),
        **fields,
        alternate_greetings=_strings(data.get("alternate_greetings")),
        group_only_greetings=_strings(data.get("group_only_greetings")),
        tags=clean_tags(split_words(data.get("tags"))),
        card=remaining,
        uuid=stable_uuid("character_cards", "characters", key),
        created_at=stored_time(data.get("creation_date")) or UNSET,
    )


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(part for part in value if isinstance(part, str)) if isinstance(value, list) else ()


def _is_kept_unchanged(field: str, value: Any) -> bool:
    if field in _GREETING_FIELDS:
        return isinstance(value, list) and _strings(value) == tuple(value)
    if field == "tags":
        return isinstance(value, list) and clean_tags(split_words(value)) == tuple(value)
    if field in ("name", *(_TEXT_FIELDS[name] for name in _SHORT_FIELDS)):
        return isinstance(value, str) and short_title(value) == value
    return field in _TEXT_FIELDS.values() and isinstance(value, str)
