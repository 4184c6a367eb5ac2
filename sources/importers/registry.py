"""The supported formats, one line each. Importers are loaded when something is imported, not at start-up."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module

from config.errors import InvalidParams
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.importer import Importer
from sources.installed import IMPORTERS, installed_points, load_points

# The name of a format, and its module in `sources.importers.formats`. If two importers are equally confident, the first
# one listed here reads the file.
FORMATS: Mapping[str, str] = {
    "own_export": "own_export",
    "conversations": "conversations",
    "chatgpt": "chatgpt.export",
    "claude_ai": "claude_ai.export",
    "gemini": "gemini",
    "grok": "grok",
    "deepseek": "deepseek",
    "perplexity": "perplexity",
    "open_webui": "open_webui",
    "librechat": "librechat",
    "chatbot_ui": "chatbot_ui",
    "message_lists": "message_lists",
    "whatsapp": "whatsapp",
    "telegram": "telegram",
    "slack": "slack",
    "discord": "discord",
    "chatgpt_browser": "chatgpt.browser",
    "tldw": "tldw.databases",
    "conversation_memory": "conversation_memory",
    "agentkit": "agentkit",
    "agentchatbus": "agentchatbus",
    "claude_code": "claude_code",
    "codex": "codex",
    "sillytavern": "sillytavern",
    "character_cards": "character_cards",
    "subtitles": "subtitles",
    "fabric": "fabric",
    "prompt_files": "prompt_files",
    "notion": "notion",
    "evernote": "evernote",
    "google_keep": "google_keep",
    "joplin": "joplin",
    "logseq": "logseq",
    "roam": "roam",
    "bear": "bear",
    "apple_notes": "apple_notes",
    "jupyter": "jupyter",
    "org": "org",
    "rst": "restructured_text",
    "mail": "mail.importer",
    "kindle": "reading.kindle",
    "readwise": "reading.readwise",
    "bookmarks": "reading.bookmarks",
    "pocket": "reading.pocket",
    "karakeep": "reading.karakeep",
    "omnivore": "reading.omnivore",
    "zotero": "reading.zotero",
    "markdown": "markdown",
    "documents": "documents",
    "document_zip": "document_zip",
}


@cache
def all_importers() -> tuple[Importer, ...]:
    """The built-in formats, then those of other distributions."""
    return (*map(load_importer, FORMATS), *_added_importers().values())


@cache
def load_importer(name: str) -> Importer:
    """Returns a registered importer without loading the others, which takes longer than reading most files."""
    if name not in FORMATS:
        return _added_importers()[name]
    importer = import_module(f"sources.importers.formats.{FORMATS[name]}").IMPORTER
    assert isinstance(importer, Importer)
    assert importer.name == name
    return importer


@cache
def _added_importers() -> Mapping[str, Importer]:
    return {importer.name: importer for importer in load_points(IMPORTERS, _require_new)}


def format_names() -> tuple[str, ...]:
    """The names of all formats, without loading any. The name of an entry point is that of its format."""
    return (*FORMATS, *(point.name for point in installed_points(IMPORTERS)))


def _require_new(importer: Importer) -> Importer:
    if not isinstance(importer, Importer):
        raise TypeError(f"expected an Importer, got {importer!r}")
    if importer.name in FORMATS:
        raise ValueError(f"the name {importer.name!r} is taken")
    return importer


def importer_by_name(name: str, importers: Sequence[Importer]) -> Importer:
    """Returns the importer for `--format`. Raises InvalidParams for an unknown name."""
    for importer in importers:
        if importer.name == name:
            return importer
    names = [importer.name for importer in importers]
    nearest = get_close_matches(name[:60], names, 1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise InvalidParams(f"format: expected one of {', '.join(names)}, got {name[:60]!r}{hint}")


def select_importer(probe: FileProbe, importers: Sequence[Importer]) -> Importer | None:
    """Returns the importer that is most confident about a file or folder, or None if none recognizes it."""
    confidences = [(importer.recognizes(probe), importer) for importer in importers]
    # Of equally confident importers the first one listed wins.
    confidence, best = max(confidences, key=lambda pair: pair[0], default=(0.0, None))
    return best if confidence > 0 else None
