"""Small mailboxes, with invented content."""

from email.message import EmailMessage

from tests.sources.importers.office_files import word


def message(key: str, subject: str, text: str, in_reply_to: str = "", **headers: str) -> bytes:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "Mara Field <mara@example.org>", "Ben <ben@example.org>", subject
    mail["Message-ID"], mail["Date"] = f"<{key}@example.org>", "Fri, 05 Jan 2024 11:30:00 +0100"
    if in_reply_to:
        mail["In-Reply-To"] = f"<{in_reply_to}@example.org>"
    for name, value in headers.items():
        del mail[name.replace("_", "-")]
        mail[name.replace("_", "-")] = value
    mail.set_content(text)
    return bytes(mail)


def mbox(*messages: bytes) -> bytes:
    """Quotes lines that start with "From ", as mail programs do."""
    quoted = (data.replace(b"\r\n", b"\n").replace(b"\nFrom ", b"\n>From ").rstrip(b"\n") for data in messages)
    return b"".join(b"From mara@example.org Fri Jan  5 10:30:00 2024\n" + data + b"\n\n" for data in quoted)


FIRST = message("a", "Tide tables", "Low water is at noon.\nFrom here it rises.", X_Gmail_Labels="Inbox,Sea")
REPLY = b"""From: =?utf-8?b?QsOpbg==?= Ash <ben@example.org>
To: mara@example.org
Subject: Re: Tide tables
Message-ID: <b@example.org>
References: <a@example.org>
Date: Sat, 6 Jan 2024 08:00:00 +0000
MIME-Version: 1.0
Content-Type: multipart/alternative; boundary=x

--x
Content-Type: text/html

<p>Thanks!</p><ul><li>crab</ul>
--x--
"""
_SPAM = message("s", "Win", "Money.", X_Gmail_Labels="Spam")
_UNTITLED = b"From: c@example.org\nMessage-ID: <u@example.org>\nDate: Sun, 7 Jan 2024 08:00:00 +0000\n\nBare.\n"
MBOX = mbox(REPLY, FIRST, _SPAM, _UNTITLED)


def _with_attachments() -> bytes:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "Mara Field <mara@example.org>", "ben@example.org", "Küste"
    mail["Message-ID"], mail["Date"] = "<m@example.org>", "Fri, 05 Jan 2024 11:30:00 +0100"
    mail.set_content("See the paper.")
    mail.add_alternative("<p>See the <b>paper</b>.</p>", subtype="html")
    mail.add_attachment(word(), maintype="application", subtype="octet-stream", filename="shore.docx")
    mail.add_attachment(b"\xff\xd8\xff", maintype="image", subtype="jpeg", filename="photo.jpg")
    return bytes(mail)


EML = _with_attachments()
MAIL_SAMPLES: dict[str, tuple[str, bytes]] = {
    "inbox.mbox": ("mail", MBOX),
    "message.eml": ("mail", EML),
}
