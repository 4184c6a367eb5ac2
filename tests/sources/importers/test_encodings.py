"""Text in legacy encodings is decoded correctly, and reported where the encoding is uncertain."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.importers.engine.batches import BatchLimits, BatchReader
from sources.importers.engine.encodings import detect_encoding
from sources.importers.engine.events import DoubtfulItem, ImportedMedia
from sources.importers.registry import all_importers, importer_by_name, load_importer
from tests.cases import each_case
from tests.sources.importers.office_files import packed
from tests.sources.importers.single_files import LIMITS, read, read_draft, write

CHINESE = "今天天气很好，我们一起去公园散步吧。晚上回来以后再写一些笔记。"
TRADITIONAL = "這本書講述了一個關於茶葉貿易的故事，作者在雲南住了十年。"
JAPANESE = "この本はお茶の貿易についての物語です。著者は雲南に十年住んでいました。"
KOREAN = "이 책은 차 무역에 관한 이야기를 담고 있습니다. 저자는 운남에서 십 년을 살았습니다."
RUSSIAN = "Эта книга рассказывает о торговле чаем, автор прожил десять лет в провинции."
CZECH = "Dnes je hezké počasí, šli jsme na procházku do parku. Večer napíšu poznámky."
POLISH = "Ta książka opowiada o handlu herbatą, a autor mieszkał tam dziesięć lat."
FRENCH = "Ce livre raconte l’histoire du thé ; l’auteur a vécu très loin de sa mère."
GERMAN = "Das Wetter ist schön, wir gehen im Park spazieren. Größe und Übung — „ja“."
TURKISH = "Bu kitap çay ticaretini anlatıyor, yazar orada on yıl yaşadı. Ağaç, güneş, İstanbul."
GREEK = "Αυτό το βιβλίο αφηγείται την ιστορία του εμπορίου τσαγιού."
HEBREW = "הספר הזה מספר על סחר התה, והמחבר חי שם עשר שנים."
ARABIC = "يحكي هذا الكتاب قصة تجارة الشاي، وقد عاش المؤلف هناك عشر سنوات."
LITHUANIAN = "Ši knyga pasakoja apie arbatos prekybą, autorius ten gyveno dešimt metų."
TEXTS = [
    ("gbk", CHINESE),
    ("big5", TRADITIONAL),
    ("shift_jis", JAPANESE),
    ("euc_jp", JAPANESE),
    ("euc_kr", KOREAN),
    ("cp1251", RUSSIAN),
    ("koi8_r", RUSSIAN),
    ("iso8859_5", RUSSIAN),
    ("cp1250", CZECH),
    ("iso8859_2", CZECH),
    ("cp1250", POLISH),
    ("iso8859_2", POLISH),
    ("cp1252", FRENCH),
    ("cp1252", GERMAN),
    ("cp1253", GREEK),
    ("iso8859_7", GREEK),
    ("cp1254", TURKISH),
    ("iso8859_9", TURKISH),
    ("cp1255", HEBREW),
    ("cp1256", ARABIC),
    ("cp1257", LITHUANIAN),
]


@each_case(("encoding", "text"), TEXTS)
def test_text_in_a_legacy_encoding_is_decoded(tmp_path: Path, encoding: str, text: str) -> None:
    path = write(tmp_path / "a.txt", f"{text}\r\nEnd.".encode(encoding))
    media = next(event.draft for event in read(load_importer("documents"), path) if isinstance(event, ImportedMedia))
    assert media.content == f"{text}\nEnd."
    assert isinstance(media.metadata, dict)
    assert media.metadata["encoding"]


@pytest.mark.slow("reads long texts")
@each_case(("encoding", "text"), TEXTS)
def test_long_text_is_decoded_like_a_short_one(encoding: str, text: str) -> None:
    long_text = f"{text} " * 300
    assert detect_encoding(long_text.encode(encoding)).text == long_text


def test_clear_encoding_is_not_reported_and_a_doubtful_one_is(tmp_path: Path) -> None:
    clear = read(load_importer("markdown"), write(tmp_path / "clear.md", GERMAN.encode("cp1252")))
    doubtful = read(load_importer("markdown"), write(tmp_path / "short.md", "文件".encode("gbk")))
    assert [event for event in clear if isinstance(event, DoubtfulItem)] == []
    assert [event for event in doubtful if isinstance(event, DoubtfulItem)] == [
        DoubtfulItem("", "encoding: guessed gb18030; if the text is wrong, convert the file to UTF-8")
    ]


SHORT = "文件".encode("gbk")
SILENT_BEFORE = {
    "a.org": ("org", SHORT),
    "a.rst": ("rst", SHORT),
    "My Clippings.txt": ("kindle", SHORT + b"\n- Your Highlight on page 1\n\nTea\n==========\n"),
    "readwise.csv": ("readwise", b"Highlight,Book Title,Book Author\n" + SHORT + b",Tea,Ada\n"),
    "pocket.csv": ("pocket", b"title,url,time_added,tags,status\n" + SHORT + b",https://a.example,1,,unread\n"),
    "thread.md": ("perplexity", b"# " + SHORT + b"\n\nAnswer.\n"),
    "fabric.zip": ("fabric", packed({"patterns/tea/system.md": SHORT})),
    "logseq.zip": ("logseq", packed({"graph/logseq/config.edn": "{}", "graph/pages/Tea.md": SHORT})),
    "notion.zip": ("notion", packed({"Tea 0123456789abcdef0123456789abcdef.md": SHORT})),
}


@each_case("name", SILENT_BEFORE)
def test_every_importer_reports_a_doubtful_encoding(tmp_path: Path, name: str) -> None:
    format_name, data = SILENT_BEFORE[name]
    path = write(tmp_path / name, data)
    events = importer_by_name(format_name, all_importers()).read(path, LIMITS, lambda _: None, None)
    batch = BatchReader(events, BatchLimits(rows=1000, chars=1 << 20)).next_batch()
    [doubt] = [report for report in batch.reports if isinstance(report, DoubtfulItem)]
    assert doubt.doubt.startswith("encoding: guessed gb18030")


def test_prompts_and_subtitles_are_decoded(tmp_path: Path) -> None:
    prompts = write(tmp_path / "a.csv", f'name,user\nЧай,"{RUSSIAN}"\n'.encode("cp1251"))
    cues = write(tmp_path / "a.srt", f"1\n00:00:01,000 --> 00:00:02,000\n{RUSSIAN}\n".encode("cp1251"))
    assert read_draft(load_importer("prompt_files"), prompts).user_prompt == RUSSIAN
    assert read_draft(load_importer("subtitles"), cues).segments[0].text == RUSSIAN


def test_page_without_a_declared_encoding_is_decoded(tmp_path: Path) -> None:
    path = write(tmp_path / "a.html", f"<html><body><p>{CHINESE}</p></body></html>".encode("gbk"))
    assert read_draft(load_importer("documents"), path).content == CHINESE


@given(st.binary(max_size=400))
def test_any_bytes_are_decoded(data: bytes) -> None:
    decoded = detect_encoding(data)
    assert isinstance(decoded.text, str)
    assert decoded.encoding
