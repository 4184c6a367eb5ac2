"""The supported formats, one line each. Importers are loaded when something is imported, not at start-up."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module

from config.errors import InvalidParams
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.importer import Importer
from sources.installed import IMPORTERS, installed_points, load_points

# The name of a format, and its module and class in `sources.importers.formats`. If two importers are equally confident,
# the first one listed here reads the file.
FORMATS: Mapping[str, str] = {
    "own_export": "own_export.OwnExportImporter",
    "conversations": "conversation_archive.ConversationsImporter",
    "chatgpt": "chatgpt.ChatGptImporter",
    "claude_ai": "claude_ai.ClaudeAiImporter",
    "gemini": "assistants.GeminiImporter",
    "grok": "assistants.GrokImporter",
    "deepseek": "assistants.DeepSeekImporter",
    "perplexity": "assistants.PerplexityImporter",
    "open_webui": "chat_clients.OpenWebUiImporter",
    "librechat": "chat_clients.LibreChatImporter",
    "chatbot_ui": "chat_clients.ChatbotUiImporter",
    "message_lists": "chat_clients.MessageListsImporter",
    "whatsapp": "messengers.WhatsAppImporter",
    "telegram": "messengers.TelegramImporter",
    "slack": "messengers.SlackImporter",
    "discord": "messengers.DiscordImporter",
    "chatgpt_browser": "chatgpt.ChatGptBrowserImporter",
    "tldw": "tldw.TldwImporter",
    "conversation_memory": "agent_databases.ConversationMemoryImporter",
    "agentkit": "agent_databases.AgentKitImporter",
    "agentchatbus": "agent_databases.AgentChatBusImporter",
    "claude_code": "coding_agents.ClaudeCodeImporter",
    "codex": "coding_agents.CodexImporter",
    "sillytavern": "sillytavern.SillyTavernImporter",
    "character_cards": "sillytavern.CharacterCardsImporter",
    "subtitles": "subtitles.SubtitlesImporter",
    "fabric": "prompts.FabricImporter",
    "prompt_files": "prompts.PromptFilesImporter",
    "notion": "note_graphs.NotionImporter",
    "evernote": "note_apps.EvernoteImporter",
    "google_keep": "note_apps.GoogleKeepImporter",
    "joplin": "note_apps.JoplinImporter",
    "logseq": "note_graphs.LogseqImporter",
    "roam": "note_graphs.RoamImporter",
    "bear": "note_graphs.BearImporter",
    "apple_notes": "note_apps.AppleNotesImporter",
    "jupyter": "text_notes.JupyterImporter",
    "org": "text_notes.OrgImporter",
    "rst": "text_notes.RestructuredTextImporter",
    "mail": "mail.MailImporter",
    "kindle": "saved_links.KindleImporter",
    "readwise": "saved_links.ReadwiseImporter",
    "bookmarks": "saved_links.BookmarksImporter",
    "pocket": "saved_links.PocketImporter",
    "karakeep": "saved_links.KarakeepImporter",
    "omnivore": "saved_links.OmnivoreImporter",
    "zotero": "zotero.ZoteroImporter",
    "markdown": "markdown.MarkdownImporter",
    "documents": "documents.DocumentsImporter",
    "document_zip": "documents.DocumentZipImporter",
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
    module, _, class_name = FORMATS[name].rpartition(".")
    importer = getattr(import_module(f"sources.importers.formats.{module}"), class_name)()
    assert isinstance(importer, Importer)
    assert importer.name == name
    return importer


def is_registered(importer: Importer) -> bool:
    """Whether the process that reads files knows an importer. Does not load the other built-in formats."""
    if importer.name in FORMATS:
        return load_importer(importer.name) is importer
    return importer in _added_importers().values()


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
    from difflib import get_close_matches  # noqa: PLC0415 - only this error needs it

    names = [importer.name for importer in importers]
    nearest = get_close_matches(name[:60], names, 1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise InvalidParams(f"format: expected one of {', '.join(names)}, got {name[:60]!r}{hint}")


def select_importer(probe: FileProbe, importers: Sequence[Importer]) -> Importer | None:
    """Returns the importer that is most confident about a file or folder, or None if none recognizes it."""

    def confidence_of(importer: Importer) -> float:
        try:
            return importer.recognizes(probe)
        except OSError:  # of a file in a folder that cannot be searched
            return 0.0

    confidences = [(confidence_of(importer), importer) for importer in importers]
    # Of equally confident importers the first one listed wins.
    confidence, best = max(confidences, key=lambda pair: pair[0], default=(0.0, None))
    return best if confidence > 0 else None
