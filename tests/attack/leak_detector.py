"""Finds a user's canary in responses to others: as text, in base64, and in archives.

A canary is a random word that is planted in everything a user stores and that is never sent. Only a leak can bring
it into a response to another user, whatever the shape of the response.
"""

import base64
import io
import secrets
import string
import zipfile
from collections.abc import Mapping

_LETTERS = 24
_ZIP = b"PK\x03\x04"
_UNPACKED_MAX_BYTES = 16 << 20


def new_canary(user: str) -> str:
    """Returns one word, so that no tokenizer divides it and no JSON encoder escapes it."""
    return f"{user}canary" + "".join(secrets.choice(string.ascii_lowercase) for _ in range(_LETTERS))


class LeakDetector:
    def __init__(self, canaries: Mapping[str, str]) -> None:
        self._patterns = {user: _patterns(canary) for user, canary in canaries.items()}

    def owners_in(self, response: bytes, recipient: str | None) -> set[str]:
        """Returns the users other than the recipient whose canary is in the response."""
        texts = [response, response.lower(), *_unpacked(response)]
        return {
            user
            for user, patterns in self._patterns.items()
            if user != recipient and any(pattern in text for pattern in patterns for text in texts)
        }


def _patterns(canary: str) -> tuple[bytes, ...]:
    """Returns the canary and its base64 at each of the three possible offsets, without the characters that depend on
    its neighbours."""
    raw = canary.encode()
    encoded = [base64.b64encode(b"\0" * offset + raw)[4 if offset else 0 : -4] for offset in range(3)]
    return (raw, *encoded)


def _unpacked(response: bytes) -> list[bytes]:
    start = response.find(_ZIP)
    if start < 0:
        return []
    try:
        with zipfile.ZipFile(io.BytesIO(response[start:])) as archive:
            entries = [entry for entry in archive.infolist() if entry.file_size < _UNPACKED_MAX_BYTES]
            return [archive.read(entry) for entry in entries]
    except (zipfile.BadZipFile, ValueError):
        return []
