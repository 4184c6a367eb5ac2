"""Character cards: every version and every wrapping, nothing of a card lost, and pictures that were made to harm."""

import json
import struct
import zlib
from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from config.errors import InvalidParams, TooLarge
from sources.importers.formats.character_cards import IMPORTER
from tests.sources.importers.single_files import damaged, draft, read, reader_of, short_id, survive, write

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


def wrapped(card: Any) -> bytes:
    return b64encode(json.dumps(card).encode())


def charx(card: Any, **entries: bytes) -> bytes:
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        archive.writestr("card.json", json.dumps(card))
        for name, data in entries.items():
            archive.writestr(name, data)
    return packed.getvalue()


TEXT_V2 = chunk(b"tEXt", b"chara\0" + wrapped(V2))
SAMPLES = {
    "v1.json": json.dumps(V1).encode(),
    "v3.json": json.dumps(V3).encode(),
    "v2.png": png(TEXT_V2),
    "ztxt.png": png(chunk(b"zTXt", b"Chara\0\0" + zlib.compress(wrapped(V2)))),
    "itxt.png": png(chunk(b"iTXt", b"CCV3\0\1\0en\0title\0" + zlib.compress(wrapped(V3)))),
    "v3.charx": charx(V3, asset=b"picture"),
}


def test_a_card_of_version_1_is_its_six_fields(tmp_path: Path) -> None:
    found = draft(IMPORTER, write(tmp_path / "a.json", json.dumps(V1)))

    assert (found.name, found.description, found.personality) == ("Wren", "A lamplighter.", "patient")
    assert (found.scenario, found.first_message) == ("A harbour at dusk.", "You are late.")
    assert (found.message_example, found.card, found.created_at) == ("<START>", {}, UNSET)


@pytest.mark.parametrize("name", ["v3.json", "itxt.png", "v3.charx"])
def test_nothing_of_a_card_of_version_3_is_lost(tmp_path: Path, name: str) -> None:
    found = draft(IMPORTER, write(tmp_path / name, SAMPLES[name]))

    assert (found.name, found.nickname, found.creator, found.character_version) == ("Wren", "W", "ada", "1.2")
    assert (found.system_prompt, found.creator_notes) == ("You are Wren.", "Speak slowly.")
    assert found.post_history_instructions == "Stay in the harbour."
    assert (found.alternate_greetings, found.group_only_greetings) == (("Again?", "Sit."), ("All of you!",))
    assert (found.tags, found.created_at) == (("harbour", "slow burn"), "2024-05-01T10:30:00.000Z")
    unknown = ("character_book", "extensions", "assets", "creator_notes_multilingual", "source", "creation_date")
    kept = {field: V3_DATA[field] for field in (*unknown, "future_field")}
    assert found.card == {**kept, "spec": "chara_card_v3", "spec_version": "3.7"}


@pytest.mark.parametrize("name", ["v2.png", "ztxt.png"])
def test_a_card_is_read_from_the_texts_of_a_picture(tmp_path: Path, name: str) -> None:
    found = draft(IMPORTER, write(tmp_path / name, SAMPLES[name]))

    assert (found.name, found.card["character_book"]) == ("Wren", BOOK)


def test_of_two_cards_in_one_picture_the_newer_version_is_read(tmp_path: Path) -> None:
    newer = chunk(b"tEXt", b"ccv3\0" + wrapped(V3))

    assert draft(IMPORTER, write(tmp_path / "a.png", png(TEXT_V2, newer))).nickname == "W"


def test_fields_of_another_kind_stay_as_they_came(tmp_path: Path) -> None:
    odd = {"name": "W" * 400, "tags": "sea, dusk", "description": None, "alternate_greetings": ["a", 7], "nickname": 5}

    found = draft(IMPORTER, write(tmp_path / "a.json", json.dumps(odd)))

    assert (found.tags, found.description, found.alternate_greetings) == (("sea", "dusk"), UNSET, ("a",))
    assert len(found.name) == 300
    assert found.card == odd


def test_the_same_file_is_the_same_character_and_another_is_another(tmp_path: Path) -> None:
    path = write(tmp_path / "a.png", SAMPLES["v2.png"])
    before = draft(IMPORTER, path)

    assert draft(IMPORTER, path) == before
    assert draft(IMPORTER, write(path, SAMPLES["v3.json"])).uuid == before.uuid
    assert draft(IMPORTER, write(tmp_path / "b.png", SAMPLES["v2.png"])).uuid != before.uuid


@pytest.mark.parametrize("name", SAMPLES)
def test_cards_are_recognised_in_every_wrapping(tmp_path: Path, name: str) -> None:
    assert reader_of(write(tmp_path / name, SAMPLES[name])) == "character_cards"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("photo.png", png()),
        ("photo.png", png(chunk(b"tEXt", b"Comment\0hello"))),
        ("photo.png", png()[:20]),
        ("book.json", b'{"spec": "lorebook_v3", "data": {"entries": []}}'),
        ("other.zip", charx(V3).replace(b"card.json", b"bard.json")),
    ],
    ids=short_id,
)
def test_other_pictures_and_files_are_not_cards(tmp_path: Path, name: str, data: bytes) -> None:
    assert reader_of(write(tmp_path / name, data)) is None


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("no card.png", png()),
        ("no base64.png", png(chunk(b"tEXt", b"chara\0*"))),
        ("no json.png", png(chunk(b"tEXt", b"chara\0" + b64encode(b"hello")))),
        ("damaged.png", png(chunk(b"zTXt", b"chara\0\0damaged"))),
        ("cut.png", png(TEXT_V2)[:200]),
        ("nameless.json", b'{"spec": "chara_card_v2", "data": {"name": " "}}'),
        ("list.json", b"[]"),
        ("deep.json", b'{"name": "W", "x": ' + b"[" * 200 + b"]" * 200 + b"}"),
        ("deeper.json", b'{"name":' * 100_000),
        ("surrogate.json", b'{"name": "\\udc00"}'),
        ("links.charx", charx(V3, **{"../out.png": b"x"})),
        ("empty.charx", charx(V3).replace(b"card.json", b"bard.json")),
        ("torn.charx", charx(V3)[:-30]),
    ],
    ids=short_id,
)
def test_what_is_no_card_is_refused_with_a_sentence(tmp_path: Path, name: str, data: bytes) -> None:
    with pytest.raises(InvalidParams, match=r"got .+, expected"):
        read(IMPORTER, write(tmp_path / name, data))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("bomb.png", png(chunk(b"zTXt", b"chara\0\0" + zlib.compress(bytes(64 << 20))))),
        ("bomb.png", png(chunk(b"iTXt", b"chara\0\1\0\0\0" + zlib.compress(bytes(64 << 20))))),
        ("lie.png", png(struct.pack(">I", 0x7FFFFFFF) + b"tEXtchara\0short")),
        ("large.json", b'{"name": "' + b"x" * (33 << 20) + b'"}'),
    ],
    ids=["zTXt", "iTXt", "a length", "JSON"],
)
def test_what_would_not_fit_into_memory_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    with pytest.raises(TooLarge):
        read(IMPORTER, write(tmp_path / name, data))


def test_half_of_a_packed_text_is_not_taken_for_all_of_it(tmp_path: Path) -> None:
    half = chunk(b"zTXt", b"chara\0\0" + zlib.compress(wrapped(V2))[:-9])

    with pytest.raises(InvalidParams, match="half of a text"):
        read(IMPORTER, write(tmp_path / "half.png", png(half)))


def test_a_picture_of_a_million_chunks_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "many.png", png(chunk(b"tEXt", b"") * 250_000))

    with pytest.raises(InvalidParams, match="chunks"):
        read(IMPORTER, path)


@given(damaged(SAMPLES))
def test_a_damaged_card_is_read_or_refused(sample: tuple[str, bytes]) -> None:
    survive(IMPORTER, *sample)


@given(st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"PK\x03\x04", b"{"]), st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(head: bytes, data: bytes) -> None:
    survive(IMPORTER, "a.png", head + data)
