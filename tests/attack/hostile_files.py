"""Hostile files, uploaded over REST: bombs, traversals, entities, nesting, and samples damaged at random."""

import asyncio
import io
import json
import random
import stat
import struct
import time
import zipfile
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from tests.attack.app_client import AttackRequest, Client
from tests.attack.leak_detector import LeakDetector, new_canary
from tests.attack.tenants import Tenant
from tests.compatibility.sample_requests import FILE
from tests.server.rest.rest_client import JSON
from tests.sources.importers.chat_exports import CHAT_SAMPLES
from tests.sources.importers.office_files import PAGE, WORD, book, packed, pdf, pdf_of, slides, word

_NASTY = (b"\0", b"\xff\xfe", b"\\ud800", b'"', b"{" * 300, b"[" * 300, b"-->", b"99999999999", b"<!--", b"PK\x03\x04")
_MEBIBYTE = 1 << 20
_SLOT_WAIT_MAX_S = 30.0
_SLOT_PAUSE_S = 0.2
_UNIX = 3  # the value of `ZipInfo.create_system`
_PNG = b"\x89PNG\r\n\x1a\n"


class FileResult(Struct):
    """`failures` are files that were answered with a server error or whose import did not end."""

    files: int
    imported: int
    leaks: list[str]
    failures: list[str]


def hostile_files(server_file: Path) -> Iterator[tuple[str, bytes]]:
    """Yields names and contents that are hostile on purpose. Some try to import a file of the server."""
    declared = WORD.partition("?>")[2]
    entity = f'<!DOCTYPE a [<!ENTITY b SYSTEM "{server_file.as_uri()}">]>'
    yield "entities.docx", word('<!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;&b;">]>' + declared)
    yield "files.docx", word(entity + declared.replace("Low water", "&b;"))
    yield "files.epub", book(**{"OEBPS/text/two.xhtml": f"{entity}<html><body><p>&b;</p></body></html>"})
    yield "files.html", f'<html><p>x</p><iframe src="{server_file.as_uri()}"></iframe></html>'.encode()
    yield "link.zip", _link(server_file)
    yield "traversal.docx", word(**{"../../out": "x"})
    yield "bomb.docx", word(f"{WORD.partition('<w:body>')[0]}<w:body><w:t>{'x' * 20 * _MEBIBYTE}</w:t></w:body>")
    yield "bomb.epub", book(**{"OEBPS/text/two.xhtml": "<p>" + "x" * 12 * _MEBIBYTE})
    yield "elsewhere.epub", book(**{"META-INF/container.xml": '<a><rootfile full-path="../../etc/x"/></a>'})
    yield "bomb.zip", packed({"conversations.json": b"[" + b" " * 64 * _MEBIBYTE})
    yield "traversal.zip", packed({"../../../etc/cron.d/x.md": b"# x"})
    yield "absolute.zip", packed({"/etc/passwd.md": b"# x"})
    yield "many.zip", packed({f"{number}.md": b"# x" for number in range(5_000)})
    yield "nested.zip", packed({"a.zip": packed({"b.zip": packed({"c.md": b"# x"})})})
    yield "cycle.pdf", pdf_of("<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [2 0 R] /Count 9 >>", "<< >>")
    yield "torn.pdf", b"%PDF-1.7\nnothing"
    yield "deep.json", b'{"name":' * 100_000
    yield "deep list.json", b"[" * 1_000_000
    yield "number.json", b'[{"title": "x", "create_time": ' + b"9" * 100_000 + b"}]"
    yield "surrogate.json", b'{"name": "\\udc00"}'
    yield "bomb.png", _png(_chunk(b"zTXt", b"chara\0\0" + zlib.compress(bytes(64 * _MEBIBYTE))))
    yield "lie.png", _png(struct.pack(">I", 0x7FFFFFFF) + b"tEXtchara\0short")
    yield "deep.html", b"<html>" + b"<div>" * 200_000 + b"x" + b"</p>" * 200_000
    for markup in (b"<!--", b"<a b='", b"</", b"<![CDATA[", b"<title>", b"&#x", b"<table>"):
        yield "unterminated.html", b"<html><p>x</p>" + markup * (400_000 // len(markup))
    yield "lines.md", b"# x\n" + b"\n" * _MEBIBYTE
    yield "yaml.md", b"---\na: &a [x]\nb: [*a, *a]\n---\n" + b"---\n" * 50_000
    yield "nul.txt", b"a\0b"
    yield "../../../../etc/passwd", b"# a name that is a path\n"
    yield "\u202egnp.exe\r\nX-Header: 1", b"# a name with control characters\n"
    yield "voice.vtt", b"WEBVTT\n\n00:00.000 --> 00:01.000\n" + b"<v " * 300_000


def samples() -> Mapping[str, bytes]:
    """Valid files of several formats, to be damaged."""
    card = {"spec": "chara_card_v2", "spec_version": "2.0", "data": {"name": "Wren", "description": "A lamplighter."}}
    text = _chunk(b"tEXt", b"chara\0" + b64encode(json.dumps(card).encode()))
    return {
        "a.txt": b"A plain text.\r\n",
        "a.md": b"---\ntitle: Shore\ntags: [sea]\n---\n# Shore\n\nLow water.\n",
        "a.html": PAGE.encode(),
        "a.docx": word(),
        "a.pptx": slides(),
        "a.epub": book(),
        "a.pdf": pdf("Low water.", "High water."),
        "card.png": _png(text),
        "card.json": json.dumps(card).encode(),
        "a.srt": b"1\n00:00:01,000 --> 00:00:02,000\nLow water.\n",
        "a.jsonl": b'{"type":"user","message":{"role":"user","content":"hi"},"sessionId":"s","uuid":"u"}\n',
        **{name: data for name, (_, data) in CHAT_SAMPLES.items()},
    }


def damaged_files(rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Yields samples with parts removed, repeated or replaced, without an end."""
    valid = [*samples().items()]
    while True:
        name, data = rng.choice(valid)
        for _ in range(rng.randint(1, 4)):
            start = rng.randint(0, len(data))
            end = min(len(data), start + rng.randint(0, 40))
            replacement = rng.choice((rng.randbytes(rng.randint(0, 12)), rng.choice(_NASTY), data[start:end] * 2))
            data = data[:start] + replacement + data[end:]
        yield name, data


async def attack_with_files(
    client: Client, tenant: Tenant, detector: LeakDetector, directory: Path, files_max: int, deadline_s: float
) -> FileResult:
    """Imports the hostile files and then damaged ones, one after the other, as a user would. Nothing of the file that
    is written to the directory may be imported."""
    result, started_at = FileResult(0, 0, [], []), time.monotonic()
    secret, server_file = new_canary("server"), directory / "server file.md"
    server_file.write_text(f"# {secret}\n")
    for name, data in chain(hostile_files(server_file), damaged_files(random.Random(files_max))):
        if result.files >= files_max or time.monotonic() - started_at > deadline_s:
            break
        result.files += 1
        await import_file(client, tenant, detector, name, data, result)
    if await has_text(client, tenant, secret):
        result.leaks.append("a file of the server was imported")
    return result


async def has_text(client: Client, tenant: Tenant, word: str) -> bool:
    """Returns whether a search of all sources finds the word."""
    body = msgspec.json.encode({"query": word})
    response = await client.send(AttackRequest("search", "POST", "/api/v1/search", JSON, body), tenant.credential)
    assert response.status == 200
    return bool(response.json()["results"])


async def import_file(
    client: Client, tenant: Tenant, detector: LeakDetector, name: str, data: bytes, result: FileResult
) -> None:
    upload = AttackRequest(name, "POST", f"/api/v1/import?name={quote(name)}", FILE, data)
    started = await client.send(upload, tenant.credential)
    give_up_at = time.monotonic() + _SLOT_WAIT_MAX_S
    while started.status == 503 and started.header("retry-after") and time.monotonic() < give_up_at:
        await asyncio.sleep(_SLOT_PAUSE_S)  # as many imports as allowed are running
        started = await client.send(upload, tenant.credential)
    if started.status != 202:
        if started.status >= 500:
            result.failures.append(f"{name!r}: {started.status}")
        return
    follow = AttackRequest(name, "GET", f"/api/v1/import/{started.json()['id']}/events")
    try:
        events = await client.send(follow, tenant.credential)
    except TimeoutError:
        result.failures.append(f"{name!r}: the import did not end")
        return
    if b"event: end" not in events.body or b"internal error" in events.body:
        result.failures.append(f"{name!r}: {events.body[-300:]!r}")
    result.leaks += [f"{name!r} showed data of {owner}" for owner in detector.owners_in(events.body, tenant.name)]
    result.imported += b'"state":"done"' in events.body


def _link(target: Path) -> bytes:
    """Returns an archive with a symbolic link."""
    link = zipfile.ZipInfo("link.md")
    link.create_system, link.external_attr = _UNIX, (stat.S_IFLNK | 0o777) << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(link, str(target))
        archive.writestr("x.md", "# x")
    return buffer.getvalue()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(*chunks: bytes) -> bytes:
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    return _PNG + header + _chunk(b"IDAT", zlib.compress(b"\0\0")) + b"".join(chunks) + _chunk(b"IEND", b"")
