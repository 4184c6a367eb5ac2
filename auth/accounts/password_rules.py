"""What a new password must be, after NIST SP 800-63B: long enough and not easily guessed, of any characters.

Passwords are normalized to NFKC, so that they work with every keyboard and operating system. Lengths are counted in
characters (code points) after that.
"""

import unicodedata
from functools import cache
from pathlib import Path

from config.errors import InvalidParams
from config.settings import Settings

_SERVICE = "florilegium"


def normalize_password(password: str) -> str:
    return unicodedata.normalize("NFKC", password)


def require_new_password(settings: Settings, password: str, user_name: str) -> None:
    """Raises InvalidParams with the reason if the password cannot be used."""
    shortest, longest = settings.password_min_chars, settings.password_max_chars
    # The first check bounds the work of the second: one character can become eighteen.
    length = len(password) if len(password) > longest else len(normalize_password(password))
    if not shortest <= length <= longest:
        raise InvalidParams(f"password: expected {shortest} to {longest} characters, got {length}")
    if problem := _weakness(normalize_password(password).casefold(), user_name.casefold()):
        raise InvalidParams(f"password: expected one that is hard to guess, got {problem}")


def _weakness(password: str, user_name: str) -> str:
    if password in _common_passwords():
        return "one of the most common passwords"
    if len(set(password)) < 3:
        return "the same characters again and again"
    remainder = password.replace(user_name, "").replace(_SERVICE, "")
    if len(remainder) < 4 and remainder != password:
        return "little more than your name or the name of this service"
    return ""


@cache
def _common_passwords() -> frozenset[str]:
    return frozenset(Path(__file__).with_name("common_passwords.txt").read_text("ascii").split())
