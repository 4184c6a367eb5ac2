"""Samples of every registered format, each a single file. Tests that every format must pass use them."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from tests.sources.importers import (
    test_agentkit,
    test_character_cards,
    test_chatgpt,
    test_chatgpt_browser,
    test_claude_ai,
    test_claude_code,
    test_codex,
    test_conversation_memory,
    test_conversations,
    test_markdown,
    test_prompt_files,
    test_sillytavern,
    test_subtitles,
    test_tldw,
)
from tests.sources.importers.chat_exports import CHAT_SAMPLES
from tests.sources.importers.mail_files import MAIL_SAMPLES
from tests.sources.importers.note_exports import NOTE_SAMPLES
from tests.sources.importers.office_files import PAGE, book, packed, pdf, slides, word
from tests.sources.importers.reading_files import READING_SAMPLES
from tests.sources.importers.session_files import encode_lines
from tests.sources.importers.table_files import TABLE_SAMPLES

# The format and the bytes of a file, by its name.
Samples = Mapping[str, tuple[str, bytes]]

_TIME = "2025-10-09T19:37:47.000Z"


def own_export() -> bytes:
    """Returns the zip of an export with a conversation and a note."""
    times = {"created_at": _TIME, "last_modified": _TIME}
    common = {"tags": [], "metadata": {}, **times, "version": 1, "client_id": "a", "content_hash": ""}
    conversation = {"kind": "conversation", "uuid": "c1", **common, "title": "Talk", "namespace": "default"}
    message = {"kind": "message", **common, "conversation_id": "c1", "role": "user", "sender": "user", "model": None}
    message |= {"tool": None, "attachments": [], "citations": [], "parent_id": None, "is_canonical": True}
    messages = ({**message, "uuid": f"m{number}", "content": f"said {number}"} for number in range(3))
    note = {"kind": "note", "uuid": "n1", **common, "title": "Kettle", "content": "tea"}
    return packed(
        {
            "florilegium.json": msgspec.json.encode({"format": "florilegium-export", "format_version": 1}),
            "chats.jsonl": encode_lines({**conversation, "session_id": "", "character": None}, *messages),
            "notes.jsonl": encode_lines(note),
        }
    )


def _databases() -> Samples:
    with TemporaryDirectory() as folder:
        path = Path(folder)
        return {
            "agentkit.db": ("agentkit", test_agentkit.database(path / "a.db").read_bytes()),
            "chatgpt browser.db": ("chatgpt_browser", test_chatgpt_browser.main_database(path / "b.db").read_bytes()),
            "memory.db": ("conversation_memory", test_conversation_memory.memory(path).read_bytes()),
            "ChaChaNotes.db": ("tldw", test_tldw.sample_file()),
        }


def _chats() -> Samples:
    claude = test_claude_ai.chat(test_claude_ai.message(1, "How long?"), test_claude_ai.message(2, "Six hours."))
    return {
        "conversations.json": ("chatgpt", msgspec.json.encode([test_chatgpt.BRANCHING])),
        "chatgpt.zip": ("chatgpt", packed({"conversations.json": msgspec.json.encode([test_chatgpt.BRANCHING])})),
        "claude.json": ("claude_ai", msgspec.json.encode([claude])),
        "claude.zip": (
            "claude_ai",
            packed(
                {
                    "conversations.json": msgspec.json.encode([claude]),
                    "projects.json": msgspec.json.encode([test_claude_ai.PROJECT]),
                }
            ),
        ),
        "conversation.json": ("conversations", msgspec.json.encode(test_conversations.conversation())),
        "conversations.zip": (
            "conversations",
            packed({"conversation-k1.json": msgspec.json.encode(test_conversations.conversation())}),
        ),
        f"{test_claude_code.SESSION}.jsonl": ("claude_code", encode_lines(*test_claude_code.OPENING)),
        f"rollout-2026-11-15T08-00-00-{test_codex.SESSION}.jsonl": ("codex", encode_lines(*test_codex.LINES)),
        "Seraphina.jsonl": ("sillytavern", encode_lines(*test_sillytavern.LINES)),
    }


def _texts() -> Samples:
    return {
        "tide.md": ("markdown", test_markdown.NOTE.encode()),
        "vault.zip": ("markdown", packed({"vault/.obsidian/app.json": "{}", "vault/tide.md": test_markdown.NOTE})),
        "review.md": ("prompt_files", test_prompt_files.MARKDOWN.encode()),
        "many.csv": ("prompt_files", test_prompt_files.CSV.encode()),
        "prompts.yaml": ("prompt_files", test_prompt_files.YAML.encode()),
        "wren.png": ("character_cards", test_character_cards.SAMPLES["v2.png"]),
        "wren.json": ("character_cards", test_character_cards.SAMPLES["v3.json"]),
        "talk.vtt": ("subtitles", test_subtitles.VTT.encode()),
        "whisper.json": ("subtitles", test_subtitles.WHISPER.encode()),
        "page.html": ("documents", PAGE.encode()),
        "a.docx": ("documents", word()),
        "a.pptx": ("documents", slides()),
        "a.epub": ("documents", book()),
        "a.pdf": ("documents", pdf("Low water.")),
        "a.txt": ("documents", b"Plain words."),
    }


SAMPLES: Samples = {
    "export.zip": ("own_export", own_export()),
    **_databases(),
    **_chats(),
    **_texts(),
    **NOTE_SAMPLES,
    **MAIL_SAMPLES,
    **READING_SAMPLES,
    **CHAT_SAMPLES,
    **TABLE_SAMPLES,
}
