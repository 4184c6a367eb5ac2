"""Character cards of versions 1, 2 and 3: as JSON, in the texts of a PNG, or in a charx archive.

Every field of a card is kept: those that a character has become its own, all others stay in `card` as they came.
Pictures, sounds and other assets are left where they are.
"""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET

from config.errors import InvalidParams
from sources.drafts import CharacterDraft
from sources.importers.engine.archives import is_zip, open_archive
from sources.importers.engine.files import few_tags, json_value, key_of, read_bytes, short_title, size_of
from sources.importers.engine.front_matter import words_of
from sources.importers.engine.imported_items import ImportedCharacter, ImportEvent, ReadPosition, stable_uuid
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback
from sources.importers.engine.png_texts import SIGNATURE, keywords, text_of
from sources.importers.engine.times import moment_of

# A picture may hold both, and the newer one says more.
_KEYWORDS = ("ccv3", "chara")
_CARD_IN_CHARX = "card.json"
_SPEC = re.compile(rb'"spec"\s*:\s*"chara_card_v\d+"')
# Our names of the fields that are texts, and the cards'.
_TEXTS = {
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
_LINES = ("creator", "character_version", "nickname")
_GREETINGS = ("alternate_greetings", "group_only_greetings")


def _recognizes(probe: FileProbe) -> float:
    if probe.is_folder:
        return 0.0
    if probe.head.startswith(SIGNATURE):
        return 1.0 if any(word in _KEYWORDS for word in keywords(probe.path)) else 0.0
    if is_zip(probe.head):
        # One whose list of files cannot be read is a damaged card, if it is called one, and is told as that.
        is_damaged = not probe.names and probe.path.suffix.lower() == ".charx"
        return 0.9 if _CARD_IN_CHARX in probe.names or is_damaged else 0.0
    if not probe.head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return 0.0
    if _SPEC.search(probe.head):
        return 1.0
    return 0.7 if b'"first_mes"' in probe.head and b'"name"' in probe.head else 0.0


def _read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, _mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    value = json_value(_json_in(path, limits), limits.depth_max)
    yield ImportedCharacter(_character(value, key_of(path, limits)))
    progress(size_of(path))


def _json_in(path: Path, limits: ImportLimits) -> bytes:
    with path.open("rb") as file:
        head = file.read(len(SIGNATURE))
    if head == SIGNATURE:
        return _json_in_png(path, limits)
    if is_zip(head):
        with open_archive(path, limits) as archive:
            return archive.read(_CARD_IN_CHARX, limits.line_max_bytes)
    return read_bytes(path, limits.line_max_bytes)


def _json_in_png(path: Path, limits: ImportLimits) -> bytes:
    for keyword in _KEYWORDS:
        text = text_of(path, keyword, limits.line_max_bytes)
        if text is not None:
            return _unwrapped(text)
    raise InvalidParams("the picture: got no text named chara or ccv3, expected the card in one")


def _unwrapped(text: bytes) -> bytes:
    """JSON in base64, as the specifications say; some programs leave the base64 out."""
    if text.lstrip().startswith(b"{"):
        return text
    try:
        return b64decode(text, validate=False)
    except NotBase64 as error:
        raise InvalidParams("the picture: got a card that is no base64, expected one") from error


def _character(value: Any, key: str) -> CharacterDraft:
    if not isinstance(value, Mapping):
        raise InvalidParams("the card: got something else, expected a JSON object")
    data = value.get("data") if isinstance(value.get("data"), Mapping) else value
    assert isinstance(data, Mapping)
    name = data.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidParams(f"name: got {repr(name)[:60]}, expected what the character is called")
    texts = {ours: data[theirs] for ours, theirs in _TEXTS.items() if isinstance(data.get(theirs), str)}
    texts |= {ours: short_title(texts[ours]) for ours in _LINES if ours in texts}
    return CharacterDraft(
        name=short_title(name),
        **texts,
        alternate_greetings=_texts(data.get("alternate_greetings")),
        group_only_greetings=_texts(data.get("group_only_greetings")),
        tags=few_tags(words_of(data.get("tags"))),
        card=_rest(value, data),
        uuid=stable_uuid("character_cards", "characters", key),
        created_at=moment_of(data.get("creation_date")) or UNSET,
    )


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(part for part in value if isinstance(part, str)) if isinstance(value, list) else ()


def _rest(value: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """What no field of ours holds as it is: unknown fields, and known ones of which something was left out. Beside
    `data`, a card of version 2 often repeats version 1, which says nothing new."""
    rest = {field: part for field, part in data.items() if not _is_held(field, part)}
    if data is not value:
        rest |= {field: part for field, part in value.items() if field != "data" and data.get(field) != part}
    return rest


def _is_held(field: str, part: Any) -> bool:
    if field in _GREETINGS:
        return isinstance(part, list) and _texts(part) == tuple(part)
    if field == "tags":
        return isinstance(part, list) and few_tags(words_of(part)) == tuple(part)
    if field in ("name", *(_TEXTS[ours] for ours in _LINES)):
        return isinstance(part, str) and short_title(part) == part
    return field in _TEXTS.values() and isinstance(part, str)


IMPORTER = Importer(
    name="character_cards",
    title="Character cards (JSON, PNG, charx)",
    recognizes=_recognizes,
    read=_read,
    suffixes=(".json", ".png", ".apng", ".charx"),
)
