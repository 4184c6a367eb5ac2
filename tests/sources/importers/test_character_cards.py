"""Character cards: every version and form, without losing fields, and malicious files."""

import json
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from config.errors import InvalidParams, TooLarge
from sources.importers.registry import load_importer
from tests.cases import each_case
from tests.sources.importers.single_files import (
    damaged_files,
    importer_for,
    read,
    read_draft,
    read_or_reject,
    write,
)

IMPORTER = load_importer("character_cards")

V1 = {
    "name": "Wren",
    "description": "A lamplighter.",
    "personality": "patient",
    "scenario": "A harbour at dusk.",
    "first_mes": "You are late.",
    "mes_example": "<START>",
}
BOOK = {"entries": [{"keys": ["lamp"], "content": "Oil.", "enabled": True, "insertion_order": 1, "extensions": {}}]}
V2_DATA = {
    **V1,
    "creator_notes": "Speak slowly.",
    "system_prompt": "You are Wren.",
    "post_history_instructions": "Stay in the harbour.",
    "alternate_greetings": ["Again?", "Sit."],
    "character_book": BOOK,
    "tags": ["harbour", "slow burn"],
    "creator": "ada",
    "character_version": "1.2",
    "extensions": {"depth": {"prompt": "x"}},
}
V2 = {"spec": "chara_card_v2", "spec_version": "2.0", "data": V2_DATA}
V3_DATA = {
    **V2_DATA,
    "nickname": "W",
    "group_only_greetings": ["All of you!"],
    "assets": [{"type": "icon", "uri": "ccdefault:", "name": "main", "ext": "png"}],
    "creator_notes_multilingual": {"de": "Langsam."},
    "source": ["https://example.org/wren"],
    "creation_date": 1714559400,
    "future_field": {"kept": True},
}
V3 = {"spec": "chara_card_v3", "spec_version": "3.7", "data": V3_DATA}


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(*chunks: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    picture = chunk(b"IDAT", zlib.compress(b"\0\0"))
    return b"\x89PNG\r\n\x1a\n" + header + picture + b"".join(chunks) + chunk(b"IEND", b"")


def encode_base64(card: Any) -> bytes:
    return b64encode(json.dumps(card).encode())


def charx(card: Any, **entries: bytes) -> bytes:
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        archive.writestr("card.json", json.dumps(card))
        for name, data in entries.items():
            archive.writestr(name, data)
    return buffer.getvalue()


TEXT_V2 = chunk(b"tEXt", b"chara\0" + encode_base64(V2))
SAMPLES = {
    "v1.json": json.dumps(V1).encode(),
    "v3.json": json.dumps(V3).encode(),
    "v2.png": png(TEXT_V2),
    "ztxt.png": png(chunk(b"zTXt", b"Chara\0\0" + zlib.compress(encode_base64(V2)))),
    "itxt.png": png(chunk(b"iTXt", b"CCV3\0\1\0en\0title\0" + zlib.compress(encode_base64(V3)))),
    "v3.charx": charx(V3, asset=b"picture"),
}


def test_version_1_card_has_six_fields(tmp_path: Path) -> None:
    character = read_draft(IMPORTER, write(tmp_path / "a.json", json.dumps(V1)))

    assert (character.name, character.description, character.personality) == ("Wren", "A lamplighter.", "patient")
    assert (character.scenario, character.first_message) == ("A harbour at dusk.", "You are late.")
    assert (character.message_example, character.card, character.created_at) == ("<START>", {}, UNSET)


@each_case("name", ["v3.json", "itxt.png", "v3.charx"])
def test_version_3_card_keeps_every_field(tmp_path: Path, name: str) -> None:
    character = read_draft(IMPORTER, write(tmp_path / name, SAMPLES[name]))

    assert (character.name, character.nickname, character.creator, character.character_version) == (
        "Wren",
        "W",
        "ada",
        "1.2",
    )
    assert (character.system_prompt, character.creator_notes) == ("You are Wren.", "Speak slowly.")
    assert character.post_history_instructions == "Stay in the harbour."
    assert (character.alternate_greetings, character.group_only_greetings) == (("Again?", "Sit."), ("All of you!",))
    assert (character.tags, character.created_at) == (("harbour", "slow burn"), "2024-05-01T10:30:00.000Z")
    unknown = ("character_book", "extensions", "assets", "creator_notes_multilingual", "source", "creation_date")
    remaining = {field: V3_DATA[field] for field in (*unknown, "future_field")}
    assert character.card == {**remaining, "spec": "chara_card_v3", "spec_version": "3.7"}


@each_case("name", ["v2.png", "ztxt.png"])
def test_card_is_read_from_png_text_chunks(tmp_path: Path, name: str) -> None:
    character = read_draft(IMPORTER, write(tmp_path / name, SAMPLES[name]))

    assert (character.name, character.card["character_book"]) == ("Wren", BOOK)


def test_newer_version_is_read_if_a_png_contains_two(tmp_path: Path) -> None:
    newer = chunk(b"tEXt", b"ccv3\0" + encode_base64(V3))

    assert read_draft(IMPORTER, write(tmp_path / "a.png", png(TEXT_V2, newer))).nickname == "W"


def test_fields_of_unexpected_type_are_kept_in_the_card(tmp_path: Path) -> None:
    odd = {"name": "W" * 400, "tags": "sea, dusk", "description": None, "alternate_greetings": ["a", 7], "nickname": 5}

    character = read_draft(IMPORTER, write(tmp_path / "a.json", json.dumps(odd)))

    assert (character.tags, character.description, character.alternate_greetings) == (("sea", "dusk"), UNSET, ("a",))
    assert len(character.name) == 300
    assert character.card == odd


def test_character_is_identified_by_its_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.png", SAMPLES["v2.png"])
    before = read_draft(IMPORTER, path)

    assert read_draft(IMPORTER, path) == before
    assert read_draft(IMPORTER, write(path, SAMPLES["v3.json"])).uuid == before.uuid
    assert read_draft(IMPORTER, write(tmp_path / "b.png", SAMPLES["v2.png"])).uuid != before.uuid


@each_case("name", SAMPLES)
def test_every_form_of_card_is_recognized(tmp_path: Path, name: str) -> None:
    assert importer_for(write(tmp_path / name, SAMPLES[name])) == "character_cards"


@each_case(
    ("name", "data"),
    [
        ("photo.png", png()),
        ("photo.png", png(chunk(b"tEXt", b"Comment\0hello"))),
        ("photo.png", png()[:20]),
        ("book.json", b'{"spec": "lorebook_v3", "data": {"entries": []}}'),
        ("other.zip", charx(V3).replace(b"card.json", b"bard.json")),
    ],
)
def test_other_files_are_not_recognized(tmp_path: Path, name: str, data: bytes) -> None:
    assert importer_for(write(tmp_path / name, data)) is None


@each_case(
    ("name", "data", "problem"),
    [
        ("no card.png", png(), "PNG contains no character card"),
        ("no base64.png", png(chunk(b"tEXt", b"chara\0*")), "is not valid base64|JSON is malformed"),
        ("no json.png", png(chunk(b"tEXt", b"chara\0" + b64encode(b"hello"))), "JSON is malformed"),
        ("damaged.png", png(chunk(b"zTXt", b"chara\0\0damaged")), "PNG contains a damaged text chunk"),
        ("cut.png", png(TEXT_V2)[:200], "PNG is truncated"),
        ("nameless.json", b'{"spec": "chara_card_v2", "data": {"name": " "}}', "name: expected the name of the"),
        ("list.json", b"[]", "expected a JSON object"),
        ("deep.json", b'{"name": "W", "x": ' + b"[" * 200 + b"]" * 200 + b"}", "JSON is nested more than"),
        ("deeper.json", b'{"name":' * 100_000, "JSON is nested more than"),
        ("surrogate.json", b'{"name": "\\udc00"}', "JSON is malformed"),
        ("links.charx", charx(V3, **{"../out.png": b"x"}), "points outside the archive"),
        ("empty.charx", charx(V3).replace(b"card.json", b"bard.json"), "'card.json' is missing"),
        ("torn.charx", charx(V3)[:-30], "not a valid zip file"),
    ],
)
def test_invalid_card_is_rejected(tmp_path: Path, name: str, data: bytes, problem: str) -> None:
    with pytest.raises(InvalidParams, match=problem):
        read(IMPORTER, write(tmp_path / name, data))


@pytest.mark.slow("makes a large file")
@each_case(
    ("name", "make_card"),
    [
        ("bomb.png", lambda: png(chunk(b"zTXt", b"chara\0\0" + zlib.compress(bytes(64 << 20))))),
        ("bomb.png", lambda: png(chunk(b"iTXt", b"chara\0\1\0\0\0" + zlib.compress(bytes(64 << 20))))),
        ("lie.png", lambda: png(struct.pack(">I", 0x7FFFFFFF) + b"tEXtchara\0short")),
        ("large.json", lambda: b'{"name": "' + b"x" * (33 << 20) + b'"}'),
    ],
)
def test_oversized_card_is_rejected(tmp_path: Path, name: str, make_card: Callable[[], bytes]) -> None:
    with pytest.raises(TooLarge):
        read(IMPORTER, write(tmp_path / name, make_card()))


def test_truncated_compressed_text_is_rejected(tmp_path: Path) -> None:
    half = chunk(b"zTXt", b"chara\0\0" + zlib.compress(encode_base64(V2))[:-9])

    with pytest.raises(InvalidParams, match="PNG contains a truncated text chunk"):
        read(IMPORTER, write(tmp_path / "half.png", png(half)))


def test_png_with_too_many_chunks_is_rejected(tmp_path: Path) -> None:
    path = write(tmp_path / "many.png", png(chunk(b"tEXt", b"") * 250_000))

    with pytest.raises(InvalidParams, match="PNG has more than 200000 chunks"):
        read(IMPORTER, path)


@given(damaged_files(SAMPLES))
def test_damaged_card_is_read_or_rejected(sample: tuple[str, bytes]) -> None:
    read_or_reject(IMPORTER, *sample)


@given(st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"PK\x03\x04", b"{"]), st.binary(max_size=300))
def test_any_bytes_are_read_or_rejected(head: bytes, data: bytes) -> None:
    read_or_reject(IMPORTER, "a.png", head + data)
