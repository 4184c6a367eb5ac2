"""Exports of chat programs: what becomes of every part, branches and threads, and hostile variants."""

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from sources.importers.engine.events import (
    DoubtfulItem,
    ImportedNote,
    ImportedObservation,
    ImportedPrompt,
    ImportEvent,
    SkippedItem,
)
from sources.importers.registry import all_importers, importer_by_name
from tests.cases import each_case
from tests.sources.importers.chat_exports import (
    CHAT_SAMPLES,
    CHATBOT_UI,
    DEEPSEEK,
    GEMINI,
    LIBRECHAT,
    LIBRECHAT_MESSAGES,
    SHAREGPT,
    SLACK,
    TELEGRAM,
    encoded,
)
from tests.sources.importers.chat_files import (
    LIMITS,
    confidence,
    failures,
    imported_conversations,
    imported_messages,
    message_contents,
    nested,
    read,
    read_or_reject,
    skip_reasons,
)
from tests.sources.importers.office_files import packed
from tests.sources.importers.single_files import write


def read_sample(tmp_path: Path, name: str, data: bytes | None = None, file_name: str = "") -> list[ImportEvent]:
    """Reads a sample, or other data as the format of the sample."""
    format_name, sample = CHAT_SAMPLES[name]
    path = write(tmp_path / (file_name or name), sample if data is None else data)
    return read(importer_by_name(format_name, all_importers()), path)


def speeches(events: list[ImportEvent]) -> list[tuple[Any, Any, Any]]:
    """Returns the sender, text and time of every message."""
    return [(message.sender, message.content, message.created_at) for message in imported_messages(events)]


def chat_titles(events: list[ImportEvent]) -> list[Any]:
    return [chat.draft.title for chat in imported_conversations(events)]


# -- assistants --------------------------------------------------------------------------------------------------------


def test_gemini_exchanges_are_grouped_by_their_address(tmp_path: Path) -> None:
    events = read_sample(tmp_path, "MyActivity.json")
    assert chat_titles(events) == ["Name a harbour", "How long does tea steep?"]
    assert speeches(events)[2:] == [
        ("user", "How long does tea steep?", "2024-05-03T08:00:00.000Z"),
        ("assistant", "Three minutes.", "2024-05-03T08:00:00.000Z"),
        ("user", "And a green one?", "2024-05-03T08:05:00.000Z"),
        ("assistant", "Only two minutes.", "2024-05-03T08:05:00.000Z"),
    ]
    assert imported_messages(events)[2].attachments == ({"name": "leaf.png"},)
    assert skip_reasons(events) == ["activity without an answer", "activity of another product"]
    assert imported_messages(read_sample(tmp_path, "gemini takeout.zip")) == imported_messages(events)


def test_gemini_in_another_language_is_recognized(tmp_path: Path) -> None:
    german = [{**activity, "title": f"Eingegeben: {activity['title']}"} for activity in GEMINI]
    name = "Takeout/Meine Aktivitäten/Gemini-Apps/MeineAktivitäten.json"
    events = read_sample(tmp_path, "gemini takeout.zip", packed({name: encoded(german)}))
    assert message_contents(events)[0] == "Prompted Name a harbour"


def test_grok_keeps_branches_times_and_sources(tmp_path: Path) -> None:
    events = read_sample(tmp_path, "grok.zip")
    [chat] = imported_conversations(events)
    assert (chat.draft.title, chat.draft.created_at, chat.draft.last_modified) == (
        *("Tides", "2024-05-03T08:00:00.000Z", "2024-05-03T08:10:00.000Z"),
    )
    question, answer, other = chat.messages
    assert [(message.content, message.is_canonical, message.model) for message in (question, answer, other)] == [
        ("When is low water?", True, None),
        ("At one.", True, "grok-3"),
        ("At noon.", False, "grok-3"),
    ]
    assert answer.parent_id == other.parent_id == question.uuid
    assert other.citations == ({"title": "Tide table", "url": "https://example.org/tides"},)


def test_deepseek_fragments_become_messages(tmp_path: Path) -> None:
    events = read_sample(tmp_path, "deepseek.zip")
    assert [(message.role, message.content, message.metadata) for message in imported_messages(events)] == [
        ("user", "Why does it whistle?", {}),
        ("assistant", "Steam, two plates.", {"content_type": "thinking"}),
        ("assistant", "Steam leaves between two plates.", {}),
    ]
    ids = [message.uuid for message in imported_messages(events)]
    assert [message.parent_id for message in imported_messages(events)] == [None, *ids[:2]]


def test_old_deepseek_export_and_its_folder_are_read(tmp_path: Path) -> None:
    mapping = {
        "root": {"parent": None, "message": None},
        "1": {"parent": "root", "message": {"content": "Why?"}},
        "2": {"parent": "1", "message": {"content": "Steam.", "reasoning_content": "Plates."}},
    }
    folder = tmp_path / "export"
    write(folder / "conversations.json", encoded([{**DEEPSEEK[0], "mapping": mapping}]))
    write(folder / "user.json", b"{}")
    events = read(importer_by_name("deepseek", all_importers()), folder)
    assert [(message.role, message.content) for message in imported_messages(events)] == [
        ("user", "Why?"),
        ("assistant", "Plates."),
        ("assistant", "Steam."),
    ]


def test_perplexity_threads_keep_questions_answers_and_sources(tmp_path: Path) -> None:
    markdown, thread = read_sample(tmp_path, "perplexity.md"), read_sample(tmp_path, "perplexity.json")
    assert [(message.role, message.content) for message in imported_messages(markdown)] == [
        ("user", "When is low water in Whitby?"),
        ("assistant", "At noon, on most days.[^1_1]"),
        ("user", "And high water?"),
        ("assistant", "Six hours later."),
    ]
    assert imported_messages(markdown)[1].citations == [{"title": "", "url": "https://example.org/tides"}]
    assert chat_titles(thread) == ["Whitby"]
    assert speeches(thread)[1] == ("assistant", "At noon.", "2024-06-01T08:00:00.123Z")


def test_open_webui_database_has_chats_prompts_and_notes(tmp_path: Path) -> None:
    events = read_sample(tmp_path, "webui.db")
    [chat] = imported_conversations(events)
    assert (chat.draft.title, chat.draft.tags) == ("Bread", ("baking",))
    assert dict(chat.draft.metadata or {})["owner"] == "Ada"
    assert [(message.content, message.is_canonical) for message in chat.messages] == [
        ("Why does bread rise?", True),
        ("Yeast.", True),
        ("Magic.", False),
    ]
    assert [event.draft.user_prompt for event in events if isinstance(event, ImportedPrompt)] == ["Check {{dough}}."]
    assert [event.draft.content for event in events if isinstance(event, ImportedNote)] == ["Preheat it."]
    exported = imported_messages(read_sample(tmp_path, "open-webui.json"))
    assert [message.content for message in exported] == message_contents(events)


def test_librechat_list_and_tree_give_the_same_messages(tmp_path: Path) -> None:
    listed, tree = read_sample(tmp_path, "librechat.json"), read_sample(tmp_path, "librechat tree.json")
    assert speeches(listed) == speeches(tree)
    assert speeches(listed) == [
        ("User", "Which moss is this?", "2024-07-01T08:00:00.000Z"),
        ("Claude", "Swan's-neck moss.", "2024-07-01T08:00:05.000Z"),
    ]


def test_long_librechat_tree_is_read(tmp_path: Path) -> None:
    message = {**LIBRECHAT_MESSAGES[0], "text": "one of many"}
    start = json.dumps({**LIBRECHAT, "messages": []}).encode()[:-2]
    for number in range(1_500):
        own = {**message, "messageId": f"m{number}", "parentMessageId": f"m{number - 1}"}
        start += json.dumps(own).encode()[:-1] + b', "children": ['
    events = read_sample(tmp_path, "librechat.json", start + b"]}" * 1_500 + b"]}")
    assert len(imported_messages(events)) == 1_500
    assert all(message.is_canonical for message in imported_messages(events))


def test_chatbot_ui_has_chats_folders_and_prompts(tmp_path: Path) -> None:
    events = read_sample(tmp_path, "chatbot-ui.json")
    [chat] = imported_conversations(events)
    assert (chat.draft.title, chat.draft.tags) == ("Knots", ("Sailing",))
    assert [(message.role, message.content) for message in chat.messages] == [
        ("user", "How do I tie a bowline?"),
        ("assistant", "Make a loop."),
    ]
    assert [event.draft.name for event in events if isinstance(event, ImportedPrompt)] == ["Log"]
    first_version = read_sample(tmp_path, "chatbot-ui.json", encoded(CHATBOT_UI["history"]))
    assert message_contents(first_version) == message_contents(events)


def test_message_lists_keep_roles_and_parts(tmp_path: Path) -> None:
    lines, pairs = read_sample(tmp_path, "messages.jsonl"), read_sample(tmp_path, "sharegpt.json")
    assert chat_titles(lines) == ["Is it raining?", "And now?"]
    assert [(message.role, message.content) for message in imported_messages(lines)][:3] == [
        ("system", "Be kind."),
        ("user", "Is it raining?"),
        ("assistant", "Not yet."),
    ]
    assert chat_titles(pairs) == ["Name three ferns.", "And a moss?"]
    assert [message.role for message in imported_messages(pairs)] == ["user", "assistant", "system", "user"]
    as_lines = b"\n".join(json.dumps(conversation).encode() for conversation in SHAREGPT)
    assert message_contents(read_sample(tmp_path, "messages.jsonl", as_lines)) == message_contents(pairs)


# -- people ------------------------------------------------------------------------------------------------------------


def test_whatsapp_keeps_names_times_and_lines(tmp_path: Path) -> None:
    events = read_sample(tmp_path, "WhatsApp Chat - Harbour walk.zip")
    assert chat_titles(events) == ["Harbour walk"]
    assert speeches(events) == [
        ("Mara Field", "Low water is at noon.\nBring boots!", "2024-05-03T08:00:05.000Z"),
        ("Ben", "<attached: 00000012-PHOTO.jpg>", "2024-05-13T09:30:00.000Z"),
    ]
    android = read_sample(tmp_path, "WhatsApp Chat with Mara.txt")
    assert chat_titles(android) == ["Mara"]
    assert speeches(android) == [
        ("Mara", "Happy new year: soon!", "2023-12-31T23:58:00.000Z"),
        *[("Ben", "Happy new year!", "2024-01-01T00:01:00.000Z")] * 2,
    ]


@each_case(
    ("lines", "times", "is_doubtful"),
    [
        ("[31/12/2023, 23:59:59] A: x", ["2023-12-31T23:59:59.000Z"], False),
        (
            "2/1/24, 08:00 - A: x\n3/1/24, 08:00 - A: y\n1/2/24, 08:00 - A: z",
            ["2024-01-02", "2024-01-03", "2024-02-01"],
            False,
        ),
        (
            "1/2/24, 08:00 - A: x\n1/3/24, 08:00 - A: y\n2/1/24, 08:00 - A: z",
            ["2024-01-02", "2024-01-03", "2024-02-01"],
            False,
        ),
        ("1/2/24, 08:00 - A: x", ["2024-02-01"], True),
        ("[2024-05-03, 08:00:00] A: x", ["2024-05-03T08:00:00.000Z"], False),
        ("3-5-2024 08:00 - A: x\n13-5-2024 08:00 - A: y", ["2024-05-03", "2024-05-13"], False),
        ("03.05.24, 8:00 p. m. - A: x\n13.05.24, 8:00 a. m. - A: y", ["2024-05-03T20:00", "2024-05-13T08:00"], False),
    ],
)
def test_whatsapp_dates_of_all_regions_are_read(
    tmp_path: Path, lines: str, times: list[str], is_doubtful: bool
) -> None:
    events = read_sample(tmp_path, "_chat.txt", lines.encode())
    found = [str(message.created_at) for message in imported_messages(events)]
    assert [time[: len(expected)] for time, expected in zip(found, times, strict=True)] == times
    assert any(isinstance(event, DoubtfulItem) for event in events) == is_doubtful


def test_whatsapp_export_with_fewer_messages_has_the_same_ids(tmp_path: Path) -> None:
    name = "WhatsApp Chat with Mara.txt"
    all_messages = imported_messages(read_sample(tmp_path, name))
    lines = CHAT_SAMPLES[name][1].decode().splitlines(keepends=True)
    fewer = imported_messages(
        read_sample(tmp_path, name, "".join(lines[1:]).encode(), "WhatsApp Chat with Mara (1).txt")
    )
    assert [message.uuid for message in fewer] == [message.uuid for message in all_messages]


@each_case(
    ("lines", "spoken", "notices"),
    [
        (
            # Android, in other languages; one notice contains a colon.
            (
                "3.5.24, 08:00 - Nachrichten und Anrufe sind Ende-zu-Ende-verschlüsselt. Mehr erfahren\n"
                "3.5.24, 08:01 - Mara hat die Gruppe „Watt“ erstellt\n"
                "3.5.24, 08:02 - Mara hat den Betreff von „Watt“ zu „Watt: Mai“ geändert\n"
                "3.5.24, 08:03 - Ben: Gruppe verlassen: nein\n"
                "13.5.24, 08:04 - 小明加入了\n"
            ),
            [("Ben", "Gruppe verlassen: nein")],
            4,
        ),
        (
            # A person whose name has quotes.
            '3/5/24, 08:03 - Mara "Tide" Field: One.\n13/5/24, 08:04 - Mara "Tide" Field: Two.\n',
            [('Mara "Tide" Field', "One."), ('Mara "Tide" Field', "Two.")],
            0,
        ),
        (
            # A group on an iPhone: notices in the name of the group, and one without a name.
            (
                "[03.05.24, 08:00:00] Watt: \u200eNachrichten sind verschlüsselt.\r\n"
                "[03.05.24, 08:00:01] \u200eMara hat dich hinzugefügt\r\n"
                "[03.05.24, 08:00:02] Mara: Moin\r\n"
                "\u200e[13.05.24, 08:00:03] Ben: \u200eBild weggelassen\r\n"
                "[13.05.24, 08:00:04] Watt: \u200eMara hat die Gruppe verlassen\r\n"
            ),
            [("Mara", "Moin"), ("Ben", "Bild weggelassen")],
            3,
        ),
        (
            # A person on an iPhone: the first notice is in that person's name.
            (
                "[03.05.24, 08:00:00] Mara: \u200eMessages are end-to-end encrypted.\r\n"
                "[03.05.24, 08:00:02] Mara: Ahoy\r\n"
                "[13.05.24, 08:00:03] Mara: \u200eimage omitted\r\n"
            ),
            [("Mara", "Ahoy"), ("Mara", "image omitted")],
            1,
        ),
        (
            # The first line is an attachment.
            "[13.05.24, 08:00:00] Mara: \u200e<attached: 1.jpg>\r\n[13.05.24, 08:00:02] Ben: Nice\r\n",
            [("Mara", "<attached: 1.jpg>"), ("Ben", "Nice")],
            0,
        ),
        ("13.05.24, 08:00 - Messages are end-to-end encrypted.\n", [], 1),
    ],
)
def test_whatsapp_notices_are_not_messages(
    tmp_path: Path, lines: str, spoken: list[tuple[str, str]], notices: int
) -> None:
    events = read_sample(tmp_path, "_chat.txt", lines.encode())
    assert [(sender, text) for sender, text, _ in speeches(events)] == spoken
    assert events.count(SkippedItem("notice of WhatsApp")) == notices
    assert len(chat_titles(events)) == bool(spoken)


def test_log_file_is_not_a_whatsapp_chat(tmp_path: Path) -> None:
    importer = importer_by_name("whatsapp", all_importers())
    path = write(tmp_path / "server.txt", "2024-05-03 08:00:00 - INFO: started\n[2024-05-03 08:00:01] INFO: ready\n")
    assert confidence(importer, path) == 0.0


def test_telegram_keeps_links_replies_and_media(tmp_path: Path) -> None:
    events = read_sample(tmp_path, "result.json")
    first, second = imported_messages(events)
    assert speeches(events) == [
        ("Mara Field", "See the tide table (https://example.org/tides).", "2024-05-03T08:01:00.000Z"),
        ("Ben", "[photo]", "2024-05-03T08:02:00.000Z"),
    ]
    assert second.parent_id == first.uuid
    assert skip_reasons(events) == ["service message"]
    assert chat_titles(read_sample(tmp_path, "telegram account.json")) == ["Mara Field", "saved messages"]


def test_slack_keeps_names_threads_and_direct_messages(tmp_path: Path) -> None:
    events = read_sample(tmp_path, "slack.zip")
    assert chat_titles(events) == ["#tides", "Mara, U2"]
    assert speeches(events) == [
        ("Mara", "Low water & sun, @Mara: the table (https://example.org/tides)", "2024-05-03T08:01:00.000Z"),
        ("Ben Stone", "See you there\n[file: boots.jpg]", "2024-05-04T08:00:00.000Z"),
        ("Mara", "Hello", "2024-05-03T08:01:40.000Z"),
    ]
    assert imported_messages(events)[1].parent_id == imported_messages(events)[0].uuid
    folder = tmp_path / "unpacked"
    for name, data in SLACK.items():
        write(folder / name, data)
    assert imported_messages(read(importer_by_name("slack", all_importers()), folder)) == imported_messages(events)


def test_slack_keeps_text_that_is_only_in_blocks(tmp_path: Path) -> None:
    sentence = [
        {"type": "text", "text": "Ask "},
        {"type": "user", "user_id": "U1"},
        {"type": "text", "text": " about "},
        {"type": "link", "url": "https://example.org", "text": "boats"},
    ]
    rich = {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": sentence}]}
    section = {"type": "section", "text": {"type": "mrkdwn", "text": "Build <https://example.org|12> failed"}}
    day = [
        {
            "type": "message",
            "bot_id": "B1",
            "username": "CI",
            "ts": "1714723260.000200",
            "text": "",
            "blocks": [section],
        },
        {"type": "message", "user": "U1", "ts": "1714723261.000200", "text": "", "blocks": [rich]},
        {"type": "message", "user": "U1", "ts": "1714723262.000200", "text": "Said once", "blocks": [rich]},
        {
            "type": "message",
            "bot_id": "B1",
            "username": "CI",
            "ts": "1714723263.000200",
            "text": "",
            "attachments": [{"fallback": "[no preview available]", "blocks": [section]}],
        },
    ]
    for name, data in (SLACK | {"tides/2024-05-03.json": json.dumps(day)}).items():
        write(tmp_path / "export" / name, data)

    events = read(importer_by_name("slack", all_importers()), tmp_path / "export")

    texts = [text for _, text, _ in speeches(events)]
    build = "Build 12 (https://example.org) failed"
    assert texts[:4] == [build, "Ask @Mara about boats (https://example.org)", "Said once", build]


def test_discord_channel_keeps_replies_embeds_and_files(tmp_path: Path) -> None:
    events = read_sample(tmp_path, "Shore club - tides.json")
    first, second = imported_messages(events)
    assert (first.sender, first.content) == (
        "Mara",
        "Low water at noon\nTide table\nFor May\nhttps://example.org/tides",
    )
    assert (second.role, second.content, second.parent_id) == ("assistant", "[file: may.pdf]", first.uuid)
    assert skip_reasons(events) == ["service message"]


def test_discord_package_has_your_own_messages_in_order(tmp_path: Path) -> None:
    events = read_sample(tmp_path, "package.zip")
    assert chat_titles(events) == ["#tides", "Discord 900000000000000006"]
    assert [(sender, text) for sender, text, _ in speeches(events)] == [
        ("Mara", "Sooner"),
        ("Mara", "Later"),
        ("Mara", "An old one"),
    ]


# -- databases ---------------------------------------------------------------------------------------------------------


def test_bus_threads_keep_ids_authors_and_order(tmp_path: Path) -> None:
    events = read_sample(tmp_path, "bus.db")
    [thread] = imported_conversations(events)
    assert (thread.draft.uuid, thread.draft.title, thread.draft.namespace) == ("thread-1", "Tide plan", "bus")
    assert thread.draft.metadata == {"team": "blue", "summary": "Noon it is.", "_bus": {"status": "done"}}
    assert [(message.uuid, message.sender, message.content, message.parent_id) for message in thread.messages] == [
        ("m-1", "human", "When?", None),
        ("m-2", "Wren", "At noon.", "m-1"),
    ]
    assert thread.messages[1].metadata == {"_bus": {"priority": "urgent", "author_id": "a-2"}}
    assert sorted(skip_reasons(events)) == ["message of a deleted thread", "thread without messages"]


def test_origin_conversation_gets_the_times_of_its_messages(tmp_path: Path) -> None:
    events = read_sample(tmp_path, "origin.db")
    [chat] = imported_conversations(events)
    assert (chat.draft.title, chat.draft.created_at, chat.draft.last_modified) == (
        *("Asyncio", "2024-05-03T08:00:00.000Z", "2024-05-03T08:01:00.500Z"),
    )
    assert message_contents(events) == ["Two coroutines?", "With gather."]


def test_third_version_of_conversation_memory_has_observations(tmp_path: Path) -> None:
    [event] = read_sample(tmp_path, "memmem.db")
    assert isinstance(event, ImportedObservation)
    draft = event.draft
    assert (draft.title, draft.narrative, draft.project) == ("Lid leaked", "A new gasket fixed it.", "kettle")
    assert (draft.session_id, draft.origin, draft.created_at) == ("s-1", "imported", "2024-05-03T08:00:00.000Z")


def test_old_prompts_of_tldw_keep_their_keywords(tmp_path: Path) -> None:
    [event] = read_sample(tmp_path, "prompts.db")
    assert isinstance(event, ImportedPrompt)
    assert (event.draft.name, event.draft.author, event.draft.tags) == ("Summary", "Mara", ("talks",))
    assert (event.draft.system_prompt, event.draft.user_prompt) == ("You summarize.", "Summarize {{talk}}.")


# -- hostile files -----------------------------------------------------------------------------------------------------


def test_failed_message_is_reported_and_the_rest_is_imported(tmp_path: Path) -> None:
    first, *rest = TELEGRAM["messages"]
    bad: list[Any] = [{**rest[0], "id": "x"}, {**rest[0], "id": 9, "text": "a\0b"}, 7, {"type": "message", "id": {}}]
    events = read_sample(tmp_path, "result.json", encoded({**TELEGRAM, "messages": [first, *bad, *rest]}))
    assert len(imported_messages(events)) == 2
    assert len(failures(events)) == 4


@each_case("name", [name for name in CHAT_SAMPLES if name.endswith((".json", ".jsonl"))])
@each_case(
    "hostile",
    [
        lambda data: data.replace(b": [", b": " + b"[" * 200_000 + b"[", 1),
        lambda data: data.rstrip()[:-1] + b', "x": ' + nested(2_000) + data.rstrip()[-1:],
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b'"', b"", 3),
        lambda data: b'{"messages": ' * 50_000,
        lambda data: b'[{"a": "' + b"\\" * 300_001,
    ],
)
def test_hostile_json_is_read_or_rejected(tmp_path: Path, name: str, hostile: Any) -> None:
    format_name, data = CHAT_SAMPLES[name]
    read_or_reject(importer_by_name(format_name, all_importers()), write(tmp_path / name, hostile(data)))


@each_case("name", [name for name in CHAT_SAMPLES if name.endswith(".zip")])
def test_zip_that_unpacks_to_too_much_is_rejected(tmp_path: Path, name: str) -> None:
    format_name, data = CHAT_SAMPLES[name]
    importer = importer_by_name(format_name, all_importers())
    events = read_or_reject(importer, write(tmp_path / name, data), replace(LIMITS, unpacked_max_bytes=50))
    assert "larger than 50 bytes" in failures(events)[0][1]


@each_case("name", CHAT_SAMPLES)
def test_values_of_other_types_are_read_or_rejected(tmp_path: Path, name: str) -> None:
    format_name, data = CHAT_SAMPLES[name]
    for old, new in ((b'"id"', b'"no id"'), (b": [", b': 7, "a": ['), (b": {", b': [], "a": {'), (b"2024-", b"20x4-")):
        path = write(tmp_path / name, data.replace(old, new))
        read_or_reject(importer_by_name(format_name, all_importers()), path)
