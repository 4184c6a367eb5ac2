"""Finds the texts of pages, and writes them into the catalogs: `python -m tests.translations`, or `make translations`.

A catalog keeps the translations of texts that still exist, in the order of the texts in the source.
"""

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from jinja2 import Environment
from jinja2.ext import extract_from_ast

from server.console.pages import LANGUAGES, TRANSLATIONS, parse_po, texts_of_script

SERVER = Path(__file__).parent.parent / "server"
# The languages that have a catalog.
LANGUAGE_CODES = [code for code in LANGUAGES if code != "en"]
_PLURALS = {
    "fr": "nplurals=2; plural=(n > 1);",
    "ja": "nplurals=1; plural=0;",
    "zh": "nplurals=1; plural=0;",
    "ar": "nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5);",
}
_PLURAL = "nplurals=2; plural=(n != 1);"


@cache
def source_texts() -> dict[str, tuple[str, str]]:
    """Returns the form for several (empty if there is none) and the file of each text of the pages."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(SERVER.rglob("*")):
        name = path.relative_to(SERVER.parent).as_posix()
        for forms in _texts_of(path):
            text, several = (*forms, "")[:2]
            plural, file = found.get(text, ("", name))
            found[text] = (plural or several, file)
    return found


def _texts_of(path: Path) -> Iterator[tuple[str, ...]]:
    match path.suffix:
        case ".html":
            environment = Environment(extensions=["jinja2.ext.i18n"], trim_blocks=True, lstrip_blocks=True)
            environment.policies["ext.i18n.trimmed"] = True
            environment.newstyle_gettext = True  # type: ignore[attr-defined]  # added by the extension
            tree = environment.parse(path.read_text("utf-8"))
            for _, _, text in extract_from_ast(tree, ("_", "gettext", "ngettext")):
                yield tuple(one for one in ((text,) if isinstance(text, str) else text or ()) if one is not None)
        case ".js":
            yield from texts_of_script(path.read_text("utf-8"))
        case ".py":
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    count = {"_": 1, "N_": 1, "ngettext": 2}.get(node.func.id, 0)
                    constants = (arg.value for arg in node.args[:count] if isinstance(arg, ast.Constant))
                    texts = tuple(value for value in constants if isinstance(value, str))
                    if texts and len(texts) == count:
                        yield texts


def catalog_text(code: str) -> str:
    """Returns the catalog of a language with all texts of the pages."""
    path = TRANSLATIONS / f"{code}.po"
    known = parse_po(path.read_text("utf-8")) if path.exists() else {}
    rule = _PLURALS.get(code, _PLURAL)
    lines = [
        f"# The pages in {LANGUAGES[code].name}. `make translations` adds new texts.",
        'msgid ""',
        'msgstr ""',
        '"Content-Type: text/plain; charset=UTF-8\\n"',
        f'"Language: {LANGUAGES[code].tag}\\n"',
        f'"Plural-Forms: {rule}\\n"',
    ]
    count = int(rule.removeprefix("nplurals=")[0])
    previous = ""
    for text, (plural, file) in sorted(source_texts().items(), key=lambda one: (one[1][1], one[0])):
        entry = known.get(text, {})
        lines += ["", f"#: {file}"] if file != previous else [""]
        previous = file
        lines.append(f"msgid {_quoted(text)}")
        if plural:
            lines.append(f"msgid_plural {_quoted(plural)}")
            lines += [f"msgstr[{n}] {_quoted(entry.get(f'msgstr[{n}]', ''))}" for n in range(count)]
        else:
            lines.append(f"msgstr {_quoted(entry.get('msgstr', ''))}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


if __name__ == "__main__":
    for code in LANGUAGE_CODES:
        text = catalog_text(code)
        (TRANSLATIONS / f"{code}.po").write_text(text, "utf-8")
        print(
            code, sum(line.startswith("msgstr") and line.endswith(' ""') for line in text.splitlines()) - 1, "missing"
        )
