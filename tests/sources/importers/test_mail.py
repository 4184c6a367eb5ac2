"""Email: threads of an mbox file, single messages, attachments, and hostile messages."""

import json
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from config.errors import InvalidParams
from sources.importers.engine.events import FailedItem, ImportedConversation, ImportedMedia, ImportEvent, SkippedItem
from sources.importers.engine.file_probe import probe_file
from sources.importers.registry import all_importers, load_importer, select_importer
from tests.cases import each_case
from tests.sources.importers.mail_files import EML, FIRST, MBOX, REPLY, mbox, message
from tests.sources.importers.office_files import pdf
from tests.sources.importers.single_files import LIMITS, damaged_files, importer_for, read, read_or_reject, write

IMPORTER = load_importer("mail")


def conversations(events: list[ImportEvent]) -> list[ImportedConversation]:
    return [event for event in events if isinstance(event, ImportedConversation)]


def media(events: list[ImportEvent]) -> list[Any]:
    return [event.draft for event in events if isinstance(event, ImportedMedia)]


def test_threads_of_an_mbox_become_conversations(tmp_path: Path) -> None:
    events = read(IMPORTER, write(tmp_path / "a.mbox", MBOX))
    tide, other = conversations(events)

    assert (tide.draft.title, tide.draft.tags) == ("Tide tables", ("Inbox", "Sea"))
    assert (tide.draft.created_at, tide.draft.last_modified) == ("2024-01-05T10:30:00.000Z", "2024-01-06T08:00:00.000Z")
    assert [(m.sender, m.content) for m in tide.messages] == [
        ("Mara Field", "Low water is at noon.\nFrom here it rises."),
        ("Bén Ash", "Thanks!\n\n- crab"),
    ]
    assert tide.messages[0].metadata == {"subject": "Tide tables", "to": "Ben <ben@example.org>"}
    assert other.draft.title == "(no subject)"
    assert [event for event in events if isinstance(event, SkippedItem)] == [SkippedItem("message in spam or trash")]


def test_thread_keeps_its_ids_when_the_mailbox_grows(tmp_path: Path) -> None:
    (before,) = conversations(read(IMPORTER, write(tmp_path / "a.mbox", mbox(FIRST))))
    (after,) = conversations(read(IMPORTER, write(tmp_path / "b.mbox", mbox(REPLY, FIRST, FIRST))))

    assert after.draft.uuid == before.draft.uuid
    assert after.messages[0].uuid == before.messages[0].uuid
    assert len(after.messages) == 2


def test_reply_without_the_first_message_belongs_to_its_thread(tmp_path: Path) -> None:
    answer = message("c", "Re: Tide tables", "More.", in_reply_to="b")
    (alone,) = conversations(read(IMPORTER, write(tmp_path / "a.mbox", mbox(REPLY, answer))))
    (whole,) = conversations(read(IMPORTER, write(tmp_path / "b.mbox", mbox(FIRST))))

    assert len(alone.messages) == 2
    assert alone.draft.uuid == whole.draft.uuid


def test_single_message_becomes_a_media_item(tmp_path: Path) -> None:
    path = write(tmp_path / "a.eml", EML)
    mail, attached = media(read(IMPORTER, path))

    assert (mail.title, mail.author, mail.media_type) == ("Küste", "Mara Field", "email")
    assert (mail.content, mail.created_at) == ("See the paper.", "2024-01-05T10:30:00.000Z")
    assert mail.metadata == {"to": "ben@example.org", "attachments": ["shore.docx", "photo.jpg"]}
    assert (attached.title, attached.media_type) == ("The shore", "docx")
    assert attached.metadata["message"] == mail.uuid
    assert media(read(IMPORTER, write(tmp_path / "b.eml", EML)))[0].uuid == mail.uuid


def test_damaged_attachment_is_reported_and_the_rest_is_kept(tmp_path: Path) -> None:
    mail = EmailMessage()
    mail["From"], mail["Subject"], mail["Message-ID"] = "a@example.org", "Files", "<files@example.org>"
    mail.set_content("Two files.")
    mail.add_attachment(b"%PDF-1.7\nnothing", maintype="application", subtype="pdf", filename="torn.pdf")
    mail.add_attachment(pdf("Low water."), maintype="application", subtype="pdf", filename="good.pdf")

    events = read(IMPORTER, write(tmp_path / "a.mbox", mbox(bytes(mail))))

    assert [e for e in events if isinstance(e, FailedItem)] == [FailedItem("torn.pdf", "PDF is damaged")]
    assert [(item.title, item.content) for item in media(events)] == [("The shore", "Low water.")]
    attachments: Any = conversations(events)[0].messages[0].attachments
    assert [file["name"] for file in attachments] == ["torn.pdf", "good.pdf"]


@each_case(
    ("body", "text"),
    [
        (b"Content-Type: text/html; charset=iso-8859-1\r\n\r\n<p>\xe9t\xe9</p><script>x</script>", "été"),
        (b"Content-Type: text/plain; charset=gb2312\r\n\r\n" + "潮汐".encode("gb2312"), "潮汐"),
        (b"Content-Type: text/plain; charset=punycode\r\n\r\nplain", "plain"),
        (b"Content-Transfer-Encoding: quoted-printable\r\n\r\ncaf=C3=A9", "café"),
        (b"Content-Transfer-Encoding: base64\r\n\r\nY2Fmw6k=", "café"),
        (b"\r\nno headers at all", "no headers at all"),
    ],
)
def test_text_is_decoded(tmp_path: Path, body: bytes, text: str) -> None:
    data = b"From: a@example.org\r\nMessage-ID: <x@y>\r\nSubject: s\r\n" + body

    assert media(read(IMPORTER, write(tmp_path / "a.eml", data)))[0].content == text


def test_messages_are_recognized_by_their_headers(tmp_path: Path) -> None:
    assert importer_for_all(write(tmp_path / "a.txt", EML)) == "mail"
    assert importer_for_all(write(tmp_path / "mbox", MBOX)) == "mail"
    assert importer_for(write(tmp_path / "b.txt", b"From: here\nDate: today\n\nA letter.")) == "documents"
    assert importer_for_all(write(tmp_path / "c.txt", b"From here on, 2024 was calm.\nNobody came.")) == "documents"


def importer_for_all(path: Path) -> str | None:
    importer = select_importer(probe_file(path, LIMITS), all_importers())
    return None if importer is None else importer.name


# -- hostile messages --------------------------------------------------------------------------------------------------


def nested_parts(depth: int) -> bytes:
    parts = b"".join(
        b'Content-Type: multipart/mixed; boundary="%d"\r\n\r\n--%d\r\n' % (number, number) for number in range(depth)
    )
    return b"From: a@b\r\nMessage-ID: <x@y>\r\n" + parts + b"\r\nx\r\n" * 20_000


@each_case(
    ("data", "problem"),
    [
        (nested_parts(2_000), "too many parts"),
        (b"From: a@b\r\nMessage-ID: <x@y>\r\n\r\n" + b"\n" * 1_100_000, "at most 1000000 lines"),
        (b"From: a@b\r\n\r\n" + b"x" * 3_000_000, "larger than"),
    ],
)
def test_hostile_message_is_rejected(tmp_path: Path, data: bytes, problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        read(IMPORTER, write(tmp_path / "a.eml", data), line_max_bytes=2_500_000)


def test_hostile_message_in_an_mbox_fails_alone(tmp_path: Path) -> None:
    failed, kept = read(IMPORTER, write(tmp_path / "a.mbox", mbox(nested_parts(2_000), FIRST)))

    assert isinstance(failed, FailedItem)
    assert isinstance(kept, ImportedConversation)


@each_case(
    "header",
    [
        b"Subject: " + b"=?utf-8?q?" * 100_000,
        b"References: " + b"<" * 1_000_000,
        b"To: " + b"(" * 100_000,
        b"From: " + b"a@b, " * 100_000,
        b"Date: " + b"9" * 100_000,
        b"Content-Type: text/plain; " + b"a=b; " * 50_000,
        b"Content-Disposition: attachment; filename*=" + b"%" * 100_000,
    ],
)
def test_message_with_a_huge_header_is_read(tmp_path: Path, header: bytes) -> None:
    data = b"Message-ID: <x@y>\r\n" + header + b"\r\n\r\nText."

    assert read(IMPORTER, write(tmp_path / "a.eml", data))
    assert read(IMPORTER, write(tmp_path / "a.mbox", mbox(data)))


def test_messages_that_refer_to_each_other_are_one_thread(tmp_path: Path) -> None:
    one, two = message("a", "x", "1", in_reply_to="b"), message("b", "x", "2", in_reply_to="a")
    (thread,) = conversations(read(IMPORTER, write(tmp_path / "a.mbox", mbox(one, two))))

    assert len(thread.messages) == 2


def test_file_named_as_mail_by_the_user_is_rejected_if_it_is_none(tmp_path: Path) -> None:
    events = read(IMPORTER, write(tmp_path / "a.json", json.dumps({"a": 1})))
    assert all(isinstance(event, ImportedMedia | SkippedItem) for event in events)
    with pytest.raises(InvalidParams):
        read(IMPORTER, write(tmp_path / "b.eml", b"\n" * 2_100_000))


@given(damaged_files({"a.eml": message("a", "s", "text"), "a.mbox": mbox(FIRST, REPLY)}))
def test_damaged_mail_is_read_or_rejected(sample: tuple[str, bytes]) -> None:
    read_or_reject(IMPORTER, *sample)
