"""The languages of the pages: gettext catalogs, and the language and theme that a browser asks for.

Texts are written in English where they are used: `_("…")` in page code, templates and scripts (see `messages.js`), and
`{% trans %}` in templates. Placeholders have the form `%(name)s`, and a percent sign is written `%%`. A text that is
declared before there is a request, in a class or a table, is `N_("…")` and translated with `_` where it is shown.

Catalogs are `translations/LANGUAGE.po`, read as they are: there is nothing to compile. `make translations` adds new
texts to them, and `tests/server/console/test_translations.py` fails if a translation is missing.
"""

import gettext as standard_gettext
import json
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from starlette.requests import cookie_parser
from starlette.types import Scope

LANGUAGE_COOKIE = "florilegium-language"
THEME_COOKIE = "florilegium-theme"
THEMES = ("light", "dark")
# Nobody has more languages than this in the browser's settings.
_ACCEPT_MAX_CHARS = 500


class Language(Struct, frozen=True, kw_only=True):
    """`name` is what its speakers call it. `tag` is for the attribute `lang`, where a font is chosen by it."""

    name: str
    tag: str
    direction: str = "ltr"
    thousands: str = ","


LANGUAGES = {
    "en": Language(name="English", tag="en"),
    "de": Language(name="Deutsch", tag="de", thousands="."),
    "es": Language(name="Español", tag="es", thousands="."),
    "fr": Language(name="Français", tag="fr", thousands="\u202f"),
    "ja": Language(name="日本語", tag="ja"),
    "zh": Language(name="简体中文", tag="zh-Hans"),
    "ar": Language(name="العربية", tag="ar", direction="rtl"),
}


# -- catalogs ----------------------------------------------------------------------------------------------------------

TRANSLATIONS = Path(__file__).with_name("translations")
_PO_STRING = re.compile(r'(msgid|msgid_plural|msgstr(?:\[\d\])?)?\s*("(?:[^"\\]|\\.)*")\s*\Z')


class Translations(Struct, frozen=True, kw_only=True):
    """`texts` has the forms of each text by its English one: one form, or one for each kind of number."""

    texts: Mapping[str, tuple[str, ...]] = {}
    plural: str = "n != 1"  # an expression of C, which is one of JavaScript too
    form: Callable[[int], int] = lambda number: int(number != 1)


def parse_po(text: str) -> dict[str, dict[str, str]]:
    """Returns the entries of a catalog by `msgid`. The first one, with an empty `msgid`, holds the header."""
    entries: list[dict[str, str]] = []
    keyword = ""
    for line in text.splitlines():
        found = _PO_STRING.match(line)
        if found is None:  # an empty line or a comment
            continue
        keyword = found[1] or keyword
        if found[1] == "msgid":
            entries.append({})
        entries[-1][keyword] = entries[-1].get(keyword, "") + json.loads(found[2])
    return {entry["msgid"]: entry for entry in entries}


@cache
def translations(language: str) -> Translations:
    if language == "en":
        return Translations()
    entries = parse_po((TRANSLATIONS / f"{language}.po").read_text("utf-8"))
    header = entries.pop("")["msgstr"]
    rule = header.partition(" plural=")[2].partition(";")[0]
    assert rule, f"{language}.po has no Plural-Forms"
    texts: dict[str, tuple[str, ...]] = {}
    for message, entry in entries.items():
        forms = tuple(value for keyword, value in entry.items() if keyword.startswith("msgstr"))
        if all(forms):
            texts[message] = forms
    return Translations(texts=texts, plural=rule, form=standard_gettext.c2py(rule))


# -- scripts -----------------------------------------------------------------------------------------------------------
# Scripts use `_` and `ngettext` of messages.js. A page in another language loads LANGUAGE.js with their texts first.

_STRING = r'\s*("(?:[^"\\]|\\.)*")'
_SCRIPT_TEXT = re.compile(rf"(?<![\w.])(?:_\({_STRING}|ngettext\({_STRING},{_STRING})")


def texts_of_script(script: str) -> list[tuple[str, ...]]:
    """Returns the texts in a script, with the form for several if there is one."""
    found = _SCRIPT_TEXT.finditer(script)
    return [tuple(json.loads(text) for text in match.groups() if text is not None) for match in found]


def script_catalogs(scripts: list[str]) -> dict[str, bytes]:
    """Returns the files with the texts of scripts by name, one for each language."""
    messages = [forms[0] for script in scripts for forms in texts_of_script(script)]
    files: dict[str, bytes] = {}
    for language in LANGUAGES:
        known = translations(language)
        texts = {message: known.texts[message] for message in messages if message in known.texts}
        data = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
        files[f"{language}.js"] = f"globalThis.messages={{texts:{data},form:(n)=>Number({known.plural})}}\n".encode()
    return files


# -- request -----------------------------------------------------------------------------------------------------------


class Preferences(Struct, frozen=True, kw_only=True):
    """What the browser wants to see. An empty `chosen_code` or `theme` leaves the choice to the system."""

    code: str = "en"
    chosen_code: str = ""
    theme: str = ""

    @property
    def language(self) -> Language:
        return LANGUAGES[self.code]


_ENGLISH = Preferences()
_preferences: ContextVar[Preferences] = ContextVar("preferences", default=_ENGLISH)
preferences = _preferences.get


def use_preferences(scope: Scope) -> None:
    """Chooses the language and theme of the pages that answer this request: the person's choice in a cookie, then what
    the browser asks for, then English. Called first by everything that answers with a page."""
    headers = {
        name: value.decode("latin-1") for name, value in scope["headers"] if name in (b"cookie", b"accept-language")
    }
    cookies = cookie_parser(headers.get(b"cookie", ""))
    chosen, theme = cookies.get(LANGUAGE_COOKIE, ""), cookies.get(THEME_COOKIE, "")
    chosen = chosen if chosen in LANGUAGES else ""
    code = chosen or _accepted_language(headers.get(b"accept-language", ""))
    _preferences.set(Preferences(code=code, chosen_code=chosen, theme=theme if theme in THEMES else ""))


def _accepted_language(header: str) -> str:
    """Returns the first language of `Accept-Language` that there is a catalog of (RFC 9110 section 12.5.4)."""
    wanted: list[tuple[float, str]] = []
    for part in header[:_ACCEPT_MAX_CHARS].split(","):
        tag, _, weight = part.strip().lower().partition(";q=")
        try:
            wanted.append((-float(weight or 1), tag.partition("-")[0]))
        except ValueError:
            continue
    # Sorting keeps the order of equal weights.
    found = (code for weight, code in sorted(wanted, key=lambda one: one[0]) if weight < 0 and code in LANGUAGES)
    return next(found, "en")


def find_text(message: str) -> str:
    """Returns a text in the language of the request, with its placeholders."""
    return translations(preferences().code).texts.get(message, (message,))[0]


def find_form(singular: str, plural: str, number: int) -> str:
    """Returns the form of a text for a number, with its placeholders."""
    known = translations(preferences().code)
    forms = known.texts.get(singular)
    return forms[known.form(number)] if forms else (singular if number == 1 else plural)


def _(message: str, **values: Any) -> str:
    """Returns a text in the language of the request."""
    return find_text(message) % values


def ngettext(singular: str, plural: str, number: int, **values: Any) -> str:
    """Returns the form of a text for a number, which is `%(num)s` in it."""
    return find_form(singular, plural, number) % {"num": thousands(number), **values}


def N_(message: str) -> str:  # noqa: N802 - the name that gettext's users know
    """Marks a text that is translated later."""
    return message


def thousands(number: int) -> str:
    return f"{number:,}".replace(",", preferences().language.thousands)


# Words of the layers below that pages show with `_` or the filter `translated`: those of kinds of items, roles and
# states, and the errors that people cause. A test fails if one of a kind is missing.
WORDS = (
    *(N_("notes"), N_("media"), N_("chats"), N_("characters"), N_("prompts")),
    *(N_("Notes"), N_("Media"), N_("Chats"), N_("Characters"), N_("Prompts")),
    *(N_("note"), N_("media item"), N_("conversation"), N_("character"), N_("prompt"), N_("message")),
    *(N_("Title"), N_("Text"), N_("Text (Markdown)"), N_("Type"), N_("Address of the original"), N_("Author")),
    *(N_("First message"), N_("Namespace"), N_("Number of the character"), N_("Name"), N_("Description")),
    *(N_("Personality"), N_("Scenario"), N_("Example messages"), N_("System prompt"), N_("Notes of the creator")),
    *(N_("Instructions after the history"), N_("Creator"), N_("Version"), N_("Nickname"), N_("Alternate greetings")),
    *(N_("Greetings in groups"), N_("Prompt ({{name}} is a placeholder)"), N_("Arguments of the prompt")),
    *(N_("Role"), N_("Sender"), N_("Model"), N_("user"), N_("assistant"), N_("system"), N_("tool")),
    *(N_("reader"), N_("writer"), N_("admin"), N_("manager"), N_("tag"), N_("source"), N_("namespace")),
    *(N_("waiting"), N_("running"), N_("done"), N_("cancelled"), N_("failed"), N_("new"), N_("current"), N_("paused")),
    *(N_("not followed"), N_("active"), N_("revoked"), N_("expired"), N_("ok"), N_("warn"), N_("fail")),
    *(N_("discuss"), N_("implement"), N_("review"), N_("closed"), N_("archived")),
    N_("the name or the password is wrong"),
    N_("the current password is wrong"),
    N_("the two new passwords differ"),
    N_("the two passwords differ"),
    N_("the form is no longer valid; go back, reload the page and send it again"),
    N_("this link is not valid any more; ask for a new one"),
    N_("this passkey is registered already"),
    N_("this account has a passkey; use it to sign in"),
    N_("the invitation is not valid; ask for another"),
    N_("only a manager of the group can do this"),
    N_("the group needs a manager: give another member that role first, or delete the group"),
    N_("choose at least one permission and one source, or deny the request"),
    N_("sign in again before you change who has access, or delete your data"),
    N_("this server requires a passkey; add another one before you remove the last"),
)
