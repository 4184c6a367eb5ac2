"""The catalogs have every text of the pages, and the pages have no text that a catalog cannot have."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest
from jinja2 import nodes

from auth.context import ROLE_SCOPES
from auth.sharing import RuleKind
from config.openid import GroupRole
from server.compat.agentchatbus.schemas import ThreadStatus
from server.console import pages
from server.console.pages import LANGUAGES, TRANSLATIONS, parse_po
from server.following.status import FollowState
from server.import_board import ImportState
from sources.installed import ITEM_KINDS
from sources.records import MESSAGE
from tests.cases import each_case
from tests.translations import LANGUAGE_CODES, catalog_text, source_texts

CONSOLE = Path(pages.__file__).parent
# The reference of the REST API is in English, as the descriptions of its operations.
TEMPLATES = [path for path in sorted((CONSOLE / "templates").glob("*.html")) if path.name != "reference-body.html"]
SCRIPTS = [path for path in sorted((CONSOLE / "static").glob("*.js")) if path.name != "reference.js"]
_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%|%")
_TAG = re.compile(r"<[^>]*>")


@each_case("code", LANGUAGE_CODES)
def test_catalog_has_a_translation_of_every_text(code: str) -> None:
    entries = parse_po((TRANSLATIONS / f"{code}.po").read_text("utf-8"))
    forms = {
        message: [text for key, text in entry.items() if key[:6] == "msgstr"] for message, entry in entries.items()
    }

    assert [message for message in source_texts() if not all(forms.get(message, [""]))] == []


@each_case("code", LANGUAGE_CODES)
def test_catalog_is_the_one_that_make_translations_writes(code: str) -> None:
    assert (TRANSLATIONS / f"{code}.po").read_text("utf-8") == catalog_text(code)


@each_case("code", LANGUAGE_CODES)
def test_translation_has_the_placeholders_and_the_markup_of_its_text(code: str) -> None:
    different = []
    for message, (plural, _) in source_texts().items():
        for form in pages.translations(code).texts.get(message, ()):
            # A form for one may leave the number out.
            expected, found = (
                {*_PLACEHOLDER.findall(text)} - ({"num"} if plural else set()) for text in (message, form)
            )
            if expected != found or sorted(_TAG.findall(message)) != sorted(_TAG.findall(form)):
                different.append((message, form))

    assert different == []


@each_case("code", LANGUAGES)
def test_every_number_has_a_form(code: str) -> None:
    known = pages.translations(code)
    counts = {len(forms) for forms in known.texts.values() if len(forms) > 1} or {2}

    assert max(known.form(number) for number in range(1000)) < max(counts)


def test_labels_of_kinds_and_states_are_in_the_catalogs() -> None:
    kinds = [*ITEM_KINDS.values(), MESSAGE]
    labels = {label for kind in kinds for label in (kind.noun, kind.content_label)}
    labels |= {label for kind in kinds for field in kind.fields for label in (field.declared.label, *field.choices)}
    states = {*get_args(ImportState), *get_args(FollowState), *get_args(ThreadStatus), *ROLE_SCOPES}
    states |= {*get_args(GroupRole), *get_args(RuleKind)}

    assert (labels | states | set(ITEM_KINDS)) - {""} - set(pages.WORDS) == set()


class _TextFinder(HTMLParser):
    """Collects texts and attributes that people read."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.found += [
            value for name, value in attrs if name in ("title", "placeholder", "aria-label", "alt") and value
        ]

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        # Commands, paths and keys are the same in every language.
        if not {"code", "kbd", "script"} & set(self.open):
            self.found.append(data)


# What stays as it is in every language: the name, units, and addresses.
_SAME = {
    "Florilegium",
    "· Florilegium",
    "ms",
    "s",
    "Ctrl K",
    "(Ctrl K)",
    "(p)",
    "(n)",
    "(Esc)",
    "openapi.json",
    "https://api.openai.com/v1",
}


def _bare_texts(template: str) -> Iterator[str]:
    text = re.sub(r"\{#.*?#\}|\{%-?\s*trans\b.*?endtrans\s*-?%\}", "", template, flags=re.DOTALL)
    text = re.sub(r"<(/?)\{\{ media.kind \}\}", r"<\1video", text)
    text = re.sub(r"(?s)\{% block main_class %\}.*?\{% endblock %\}", "", text)  # an attribute
    finder = _TextFinder()
    finder.feed(re.sub(r"(?s)\{\{.*?\}\}|\{%.*?%\}", "", text))
    for found in finder.found:
        if re.search(r"[^\W\d_]{2}", found) and found.strip() not in _SAME:
            yield found.strip()


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_template_has_no_text_outside_the_catalogs(path: Path) -> None:
    assert list(_bare_texts(path.read_text("utf-8"))) == []


_READ_ATTRIBUTE = re.compile(r'(?:title|placeholder|aria-label|alt)="[^"]*\Z')
# Attributes at the beginning of a condition, where the tag is not seen.
_ATTRIBUTES = {"page", "true", " checked", " selected", " required", "https://example.com/page"}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_template_shows_no_words_of_an_expression(path: Path) -> None:
    """Words in `{{ "one" if … else "other" }}`, in the default of a value, and in an argument of a macro."""
    tree = pages._environment().parse(path.read_text("utf-8"))
    words = []
    for output in tree.find_all(nodes.Output):
        before = ""
        for expression in output.nodes:
            if isinstance(expression, nodes.TemplateData):
                before += expression.data
            # In a tag, people read a few attributes only.
            tag = before.rpartition("<")[2]
            if "<" not in before or ">" in tag or _READ_ATTRIBUTE.search(tag):
                words += [text for text in _shown_words(expression) if text not in _ATTRIBUTES]

    assert words == []


def _shown_words(node: nodes.Node) -> Iterator[str]:
    match node:
        case nodes.Const(value=str() as value) if re.search(r"[^\W\d_]{2}", value):
            yield value
        case nodes.CondExpr():
            yield from (*_shown_words(node.expr1), *(_shown_words(node.expr2) if node.expr2 else ()))
        case nodes.Concat() | nodes.Or() | nodes.And() | nodes.Add():
            for child in node.iter_child_nodes():
                yield from _shown_words(child)
        case nodes.Filter(node=nodes.Node() as inner):
            yield from _shown_words(inner)
        case nodes.Call(node=nodes.Name(name=name)) if name in ("quota", "once"):
            for argument in node.args:
                yield from _shown_words(argument)


_SCRIPT_TEXT = re.compile(
    r"""(?:textContent|ariaLabel|placeholder|"aria-label",|new Error\(|\.title =)[ :=]*(["`][^"`]*[a-z]{2}[^"`]*["`])"""
)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_script_shows_no_text_outside_the_catalogs(path: Path) -> None:
    script = re.sub(r"\$\{[^}]*\}", "", path.read_text("utf-8"))

    assert _SCRIPT_TEXT.findall(script) == []
