"""Small exports of chat programs, with invented content."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from tests.sources.importers.office_files import packed


def database(schema: str, **rows: Sequence[Sequence[Any]]) -> bytes:
    """Returns a SQLite file with rows by table."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema)
        for table, values in rows.items():
            for row in values:
                connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        connection.commit()
        return connection.serialize()


def encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1).encode()


# -- assistants --------------------------------------------------------------------------------------------------------

GEMINI: list[dict[str, Any]] = [
    {
        "header": "Gemini Apps",
        "title": "Prompted And a green one?",
        "titleUrl": "https://gemini.google.com/app/0a1b2c3d4e5f",
        "time": "2024-05-03T08:05:00.000Z",
        "products": ["Gemini Apps"],
        "safeHtmlItem": [{"html": "<p>Only <b>two</b> minutes.</p>"}],
    },
    {
        "header": "Gemini Apps",
        "title": "Prompted How long does tea steep?",
        "titleUrl": "https://gemini.google.com/app/0a1b2c3d4e5f",
        "time": "2024-05-03T08:00:00.000Z",
        "products": ["Gemini Apps"],
        "attachedFiles": ["leaf.png"],
        "safeHtmlItem": [{"html": "<p>Three minutes.</p>"}],
    },
    {
        "header": "Gemini Apps",
        "title": "Prompted Name a harbour",
        "time": "2024-05-02T08:00:00.000Z",
        "products": ["Gemini Apps"],
        "safeHtmlItem": [{"html": "<p>Whitby.</p>"}],
    },
    {
        "header": "Gemini Apps",
        "title": "Gave feedback",
        "time": "2024-05-01T08:00:00.000Z",
        "products": ["Gemini Apps"],
    },
    {"header": "Search", "title": "Searched for tea", "time": "2024-05-01T08:00:00.000Z", "products": ["Search"]},
]

GROK = {
    "conversations": [
        {
            "conversation": {
                "id": "11111111-2222-4333-8444-555555555555",
                "title": "Tides",
                "create_time": "2024-05-03T08:00:00.000000Z",
                "modify_time": "2024-05-03T08:10:00.000000Z",
            },
            "responses": [
                {
                    "response": {
                        "_id": "r1",
                        "message": "When is low water?",
                        "sender": "human",
                        "create_time": {"$date": {"$numberLong": "1714723200000"}},
                    }
                },
                {
                    "response": {
                        "_id": "r2",
                        "message": "At noon.",
                        "sender": "ASSISTANT",
                        "create_time": {"$date": {"$numberLong": "1714723260000"}},
                        "parent_response_id": "r1",
                        "model": "grok-3",
                        "web_search_results": [{"title": "Tide table", "url": "https://example.org/tides"}],
                    }
                },
                {
                    "response": {
                        "_id": "r3",
                        "message": "At one.",
                        "sender": "ASSISTANT",
                        "create_time": {"$date": {"$numberLong": "1714723320000"}},
                        "parent_response_id": "r1",
                        "model": "grok-3",
                    }
                },
            ],
        }
    ],
    "projects": [],
}

DEEPSEEK: list[dict[str, Any]] = [
    {
        "id": "22222222-2222-4333-8444-555555555555",
        "title": "Kettle",
        "inserted_at": "2025-02-01T10:00:00.000000+08:00",
        "updated_at": "2025-02-01T10:05:00.000000+08:00",
        "mapping": {
            "root": {"id": "root", "parent": None, "children": ["1"], "message": None},
            "1": {
                "id": "1",
                "parent": "root",
                "children": ["2"],
                "message": {
                    "model": "deepseek-chat",
                    "inserted_at": "2025-02-01T10:00:01.000000+08:00",
                    "files": [{"file_name": "kettle.pdf"}],
                    "fragments": [{"type": "REQUEST", "content": "Why does it whistle?"}],
                },
            },
            "2": {
                "id": "2",
                "parent": "1",
                "children": [],
                "message": {
                    "model": "deepseek-reasoner",
                    "inserted_at": "2025-02-01T10:00:02.000000+08:00",
                    "files": [],
                    "fragments": [
                        {"type": "THINK", "content": "Steam, two plates."},
                        {"type": "RESPONSE", "content": "Steam leaves between two plates."},
                    ],
                },
            },
        },
    }
]

PERPLEXITY_MARKDOWN = """<img src="https://r2cdn.perplexity.ai/pplx-full-logo%402x.png" class="logo" width="120"/>

# When is low water in Whitby?

At noon, on most days.[^1_1]

<div style="text-align: center">⁂</div>

[^1_1]: https://example.org/tides

---

# And high water?

Six hours later.
"""
PERPLEXITY_JSON = {
    "status": "success",
    "entries": [
        {
            "backend_uuid": "b1",
            "context_uuid": "33333333-2222-4333-8444-555555555555",
            "thread_title": "Whitby",
            "query_str": "When is low water?",
            "display_model": "pplx_pro",
            "updated_datetime": "2024-06-01T08:00:00.123456",
            "blocks": [
                {"markdown_block": {"answer": "At noon."}},
                {"web_result_block": {"web_results": [{"name": "Tides", "url": "https://example.org/tides"}]}},
            ],
        }
    ],
}

OPEN_WEBUI_CHAT = {
    "id": "44444444-2222-4333-8444-555555555555",
    "title": "Bread",
    "models": ["llama3"],
    "history": {
        "currentId": "m3",
        "messages": {
            "m1": {
                "id": "m1",
                "parentId": None,
                "childrenIds": ["m2", "m3"],
                "role": "user",
                "content": "Why does bread rise?",
                "timestamp": 1714723200,
                "files": [{"name": "loaf.jpg"}],
            },
            "m2": {
                "id": "m2",
                "parentId": "m1",
                "childrenIds": [],
                "role": "assistant",
                "content": "Magic.",
                "model": "llama3",
                "timestamp": 1714723205,
            },
            "m3": {
                "id": "m3",
                "parentId": "m1",
                "childrenIds": [],
                "role": "assistant",
                "content": "Yeast.",
                "model": "llama3",
                "timestamp": 1714723210,
            },
        },
    },
    "messages": [],
    "tags": ["baking"],
    "timestamp": 1714723200000,
}
OPEN_WEBUI = [
    {
        "id": "44444444-2222-4333-8444-555555555555",
        "user_id": "u1",
        "title": "Bread",
        "chat": OPEN_WEBUI_CHAT,
        "updated_at": 1714723300,
        "created_at": 1714723200,
        "archived": False,
        "pinned": True,
        "meta": {"tags": ["baking"]},
    }
]
OPEN_WEBUI_DATABASE = database(
    """
    CREATE TABLE user (id TEXT PRIMARY KEY, name TEXT, email TEXT);
    CREATE TABLE chat (id TEXT PRIMARY KEY, user_id TEXT, title TEXT, chat TEXT, created_at INTEGER, updated_at INTEGER,
        share_id TEXT, archived INTEGER, pinned INTEGER, meta TEXT, folder_id TEXT);
    CREATE TABLE prompt (id INTEGER PRIMARY KEY, command TEXT, user_id TEXT, title TEXT, content TEXT, timestamp TEXT);
    CREATE TABLE note (id TEXT PRIMARY KEY, user_id TEXT, title TEXT, data TEXT, created_at INTEGER, updated_at TEXT);
    """,
    user=[("u1", "Ada", "a@example.org"), ("u2", "Ben", "b@example.org")],
    chat=[
        (
            *(
                "55555555-2222-4333-8444-555555555555",
                "u1",
                "Bread",
                json.dumps(OPEN_WEBUI_CHAT),
                1714723200,
                1714723300,
            ),
            *(None, 0, 1, '{"tags": ["baking"]}', None),
        )
    ],
    prompt=[(1, "/proof", "u2", "Proof", "Check {{dough}}.", 1714723200)],
    note=[("n1", "u1", "Oven", '{"content": {"md": "Preheat it."}}', 1714723200000000000, 1714723200000000000)],
)

LIBRECHAT_MESSAGES: list[dict[str, Any]] = [
    {
        "messageId": "a1",
        "parentMessageId": "00000000-0000-0000-0000-000000000000",
        "conversationId": "66666666-2222-4333-8444-555555555555",
        "sender": "User",
        "text": "Which moss is this?",
        "isCreatedByUser": True,
        "createdAt": "2024-07-01T08:00:00.000Z",
        "files": [{"filename": "moss.jpg", "type": "image/jpeg"}],
    },
    {
        "messageId": "a2",
        "parentMessageId": "a1",
        "conversationId": "66666666-2222-4333-8444-555555555555",
        "sender": "Claude",
        "content": [{"type": "think", "think": "Hm."}, {"type": "text", "text": {"value": "Swan's-neck moss."}}],
        "isCreatedByUser": False,
        "model": "claude-3",
        "createdAt": "2024-07-01T08:00:05.000Z",
    },
]
LIBRECHAT: dict[str, Any] = {
    "conversationId": "66666666-2222-4333-8444-555555555555",
    "endpoint": "anthropic",
    "title": "Moss",
    "exportAt": "10:00:00 GMT+0000",
    "branches": True,
    "recursive": False,
    "options": {"model": "claude-3"},
    "messages": LIBRECHAT_MESSAGES,
}
LIBRECHAT_TREE = {
    **LIBRECHAT,
    "conversationId": "66666666-2222-4333-8444-666666666666",
    "recursive": True,
    "messages": [{**LIBRECHAT_MESSAGES[0], "children": [{**LIBRECHAT_MESSAGES[1], "children": []}]}],
}

CHATBOT_UI: dict[str, Any] = {
    "version": 4,
    "history": [
        {
            "id": "77777777-2222-4333-8444-555555555555",
            "name": "Knots",
            "messages": [
                {"role": "user", "content": "How do I tie a bowline?"},
                {"role": "assistant", "content": "Make a loop."},
            ],
            "model": {"id": "gpt-4", "name": "GPT-4", "maxLength": 24000, "tokenLimit": 8000},
            "prompt": "You are a sailor.",
            "temperature": 1,
            "folderId": "f1",
        }
    ],
    "folders": [{"id": "f1", "name": "Sailing", "type": "chat"}],
    "prompts": [
        {
            "id": "88888888-2222-4333-8444-555555555555",
            "name": "Log",
            "description": "For the log book",
            "content": "Write an entry about {{weather}}.",
            "model": {"id": "gpt-4"},
            "folderId": None,
        }
    ],
}

SHAREGPT: list[dict[str, Any]] = [
    {
        "id": "QWJ_0",
        "conversations": [
            {"from": "human", "value": "Name three ferns."},
            {"from": "gpt", "value": "Bracken, maidenhair, hart's tongue."},
        ],
    },
    {"conversations": [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "And a moss?"}]},
]
MESSAGE_LINES = (
    b'{"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Is it raining?"}, '
    b'{"role": "assistant", "content": [{"type": "text", "text": "Not yet."}]}]}\n'
    b'{"messages": [{"role": "user", "content": "And now?"}, {"role": "assistant", "content": "Yes."}]}\n'
)

ASSISTANT_SAMPLES: dict[str, tuple[str, bytes]] = {
    "MyActivity.json": ("gemini", encoded(GEMINI)),
    "gemini takeout.zip": ("gemini", packed({"Takeout/My Activity/Gemini Apps/MyActivity.json": encoded(GEMINI)})),
    "prod-grok-backend.json": ("grok", encoded(GROK)),
    "grok.zip": ("grok", packed({"ttl/30d/export_data/x/prod-grok-backend.json": encoded(GROK), "a/content": b"x"})),
    "deepseek.json": ("deepseek", encoded(DEEPSEEK)),
    "deepseek.zip": ("deepseek", packed({"conversations.json": encoded(DEEPSEEK), "user.json": b"{}"})),
    "perplexity.md": ("perplexity", PERPLEXITY_MARKDOWN.encode()),
    "perplexity.json": ("perplexity", encoded(PERPLEXITY_JSON)),
    "open-webui.json": ("open_webui", encoded(OPEN_WEBUI)),
    "webui.db": ("open_webui", OPEN_WEBUI_DATABASE),
    "librechat.json": ("librechat", encoded(LIBRECHAT)),
    "librechat tree.json": ("librechat", encoded(LIBRECHAT_TREE)),
    "chatbot-ui.json": ("chatbot_ui", encoded(CHATBOT_UI)),
    "sharegpt.json": ("message_lists", encoded(SHAREGPT)),
    "messages.jsonl": ("message_lists", MESSAGE_LINES),
}

# -- people ------------------------------------------------------------------------------------------------------------

WHATSAPP_IPHONE = (
    "\u200e[03.05.24, 08:00:00] Harbour walk: \u200eMessages and calls are end-to-end encrypted.\r\n"
    "[03.05.24, 08:00:05] Mara Field: Low water is at noon.\r\nBring boots!\r\n"
    "[13.05.24, 09:30:00] Ben: \u200e<attached: 00000012-PHOTO.jpg>\r\n"
)
WHATSAPP_ANDROID = (
    "12/31/23, 11:58\u202fPM - Messages and calls are end-to-end encrypted.\n"
    "12/31/23, 11:58\u202fPM - Mara: Happy new year: soon!\n"
    "1/1/24, 12:01\u202fAM - Ben: Happy new year!\n"
    "1/1/24, 12:01\u202fAM - Ben: Happy new year!\n"
)

TELEGRAM: dict[str, Any] = {
    "name": "Mara Field",
    "type": "personal_chat",
    "id": 4242,
    "messages": [
        {
            "id": 1,
            "type": "service",
            "date": "2024-05-03T08:00:00",
            "date_unixtime": "1714723200",
            "actor": "Mara Field",
            "action": "phone_call",
            "text": "",
        },
        {
            "id": 2,
            "type": "message",
            "date": "2024-05-03T08:01:00",
            "date_unixtime": "1714723260",
            "from": "Mara Field",
            "from_id": "user4242",
            "text": ["See ", {"type": "text_link", "text": "the tide table", "href": "https://example.org/tides"}, "."],
        },
        {
            "id": 3,
            "type": "message",
            "date": "2024-05-03T08:02:00",
            "date_unixtime": "1714723320",
            "from": "Ben",
            "from_id": "user7",
            "reply_to_message_id": 2,
            "photo": "photos/pool.jpg",
            "text": "",
        },
    ],
}
TELEGRAM_ACCOUNT = {
    "about": "Here is the data you requested.",
    "chats": {
        "about": "",
        "list": [{**TELEGRAM, "id": 4343}, {"type": "saved_messages", "id": 7, "messages": TELEGRAM["messages"][1:2]}],
    },
    "left_chats": {"about": "", "list": []},
}

SLACK: dict[str, str | bytes] = {
    "users.json": encoded(
        [{"id": "U1", "name": "mara", "profile": {"display_name": "Mara", "real_name": "Mara Field"}}]
    ),
    "channels.json": encoded([{"id": "C1", "name": "tides", "created": 1714720000, "topic": {"value": "The sea"}}]),
    "dms.json": encoded([{"id": "D1", "members": ["U1", "U2"]}]),
    "tides/2024-05-03.json": encoded(
        [
            {"type": "message", "subtype": "channel_join", "user": "U1", "ts": "1714723200.000100", "text": "joined"},
            {
                "type": "message",
                "user": "U1",
                "ts": "1714723260.000200",
                "thread_ts": "1714723260.000200",
                "text": "Low water &amp; sun, <@U1>: <https://example.org/tides|the table>",
                "reactions": [{"name": "wave", "count": 2}],
            },
        ]
    ),
    "tides/2024-05-04.json": encoded(
        [
            {
                "type": "message",
                "user": "U9",
                "user_profile": {"real_name": "Ben Stone"},
                "ts": "1714809600.000300",
                "thread_ts": "1714723260.000200",
                "text": "See you there",
                "files": [{"name": "boots.jpg"}],
            }
        ]
    ),
    "D1/2024-05-03.json": encoded([{"type": "message", "user": "U1", "ts": "1714723300.000100", "text": "Hello"}]),
}

DISCORD = {
    "guild": {"id": "900000000000000001", "name": "Shore club"},
    "channel": {
        "id": "900000000000000002",
        "type": "GuildTextChat",
        "category": "Walks",
        "name": "tides",
        "topic": None,
    },
    "dateRange": {"after": None, "before": None},
    "messages": [
        {
            "id": "900000000000000003",
            "type": "Default",
            "timestamp": "2024-05-03T08:00:00.000+00:00",
            "timestampEdited": None,
            "isPinned": True,
            "content": "Low water at noon",
            "author": {"id": "1", "name": "mara", "nickname": "Mara", "isBot": False},
            "attachments": [],
            "embeds": [{"title": "Tide table", "url": "https://example.org/tides", "description": "For May"}],
            "stickers": [],
        },
        {
            "id": "900000000000000004",
            "type": "Reply",
            "timestamp": "2024-05-03T08:01:00.000+00:00",
            "content": "",
            "author": {"id": "2", "name": "tidebot", "isBot": True},
            "attachments": [{"fileName": "may.pdf"}],
            "reference": {"messageId": "900000000000000003"},
        },
        {
            "id": "900000000000000005",
            "type": "GuildMemberJoin",
            "timestamp": "2024-05-03T08:02:00.000+00:00",
            "content": "Joined the server.",
            "author": {"id": "3", "name": "ben"},
        },
    ],
    "messageCount": 3,
}
DISCORD_PACKAGE: dict[str, str | bytes] = {
    "account/user.json": encoded({"id": "1", "username": "mara", "global_name": "Mara"}),
    "messages/index.json": encoded({"900000000000000002": "tides in Shore club"}),
    "messages/c900000000000000002/channel.json": encoded(
        {"id": "900000000000000002", "type": 0, "name": "tides", "guild": {"id": "1", "name": "Shore club"}}
    ),
    "messages/c900000000000000002/messages.json": encoded(
        [
            {"ID": 900000000000000009, "Timestamp": "2024-05-04 08:00:00", "Contents": "Later", "Attachments": ""},
            {"ID": 900000000000000008, "Timestamp": "2024-05-03 08:00:00", "Contents": "Sooner", "Attachments": ""},
        ]
    ),
    "messages/c900000000000000006/messages.csv": (
        "ID,Timestamp,Contents,Attachments\n900000000000000007,2022-05-03 08:00:00.5+00:00,An old one,\n"
    ),
}

PEOPLE_SAMPLES: dict[str, tuple[str, bytes]] = {
    "_chat.txt": ("whatsapp", WHATSAPP_IPHONE.encode()),
    "WhatsApp Chat with Mara.txt": ("whatsapp", WHATSAPP_ANDROID.encode()),
    "WhatsApp Chat - Harbour walk.zip": (
        "whatsapp",
        packed({"_chat.txt": WHATSAPP_IPHONE, "00000012-PHOTO.jpg": b"x"}),
    ),
    "result.json": ("telegram", encoded(TELEGRAM)),
    "telegram account.json": ("telegram", encoded(TELEGRAM_ACCOUNT)),
    "slack.zip": ("slack", packed(SLACK)),
    "Shore club - tides.json": ("discord", encoded(DISCORD)),
    "package.zip": ("discord", packed(DISCORD_PACKAGE)),
}

# -- databases of systems whose clients work with this server ----------------------------------------------------------

AGENTCHATBUS = database(
    """
    CREATE TABLE threads (id TEXT PRIMARY KEY, topic TEXT NOT NULL, status TEXT NOT NULL, created_at TEXT NOT NULL,
        closed_at TEXT, summary TEXT, metadata TEXT);
    CREATE TABLE messages (id TEXT PRIMARY KEY, thread_id TEXT NOT NULL, author TEXT NOT NULL, role TEXT NOT NULL,
        content TEXT NOT NULL, seq INTEGER NOT NULL, created_at TEXT NOT NULL, metadata TEXT, author_id TEXT,
        author_name TEXT, reply_to_msg_id TEXT, priority TEXT);
    CREATE TABLE agents (id TEXT PRIMARY KEY, name TEXT, token TEXT);
    """,
    threads=[
        ("thread-1", "Tide plan", "done", "2026-02-01T08:00:00.000000+00:00", None, "Noon it is.", '{"team": "blue"}'),
        ("thread-2", "Silence", "discuss", "2026-02-01T08:00:00+00:00", None, None, None),
    ],
    messages=[
        (
            *("m-2", "thread-1", "a-2", "assistant", "At noon.", 7, "2026-02-01T08:02:00+00:00", None, "a-2", "Wren"),
            *("m-1", "urgent"),
        ),
        (
            *(
                "m-1",
                "thread-1",
                "human",
                "user",
                "When?",
                3,
                "2026-02-01T08:01:00+00:00",
                '{"mood": "calm"}',
                None,
                None,
            ),
            *(None, "normal"),
        ),
        ("m-9", "gone", "human", "user", "lost", 9, "2026-02-01T08:01:00+00:00", None, None, None, None, None),
    ],
    agents=[("a-2", "Wren", "secret-token")],
)
ORIGIN_CONVERSATION = database(
    """
    CREATE TABLE conversations (id TEXT PRIMARY KEY, title TEXT);
    CREATE TABLE messages (id TEXT PRIMARY KEY, conversation_id TEXT, role TEXT, content TEXT, create_time REAL,
        position INTEGER);
    """,
    conversations=[("99999999-2222-4333-8444-555555555555", "Asyncio")],
    messages=[
        ("m2", "99999999-2222-4333-8444-555555555555", "assistant", '["With gather."]', 1714723260.5, 2),
        ("m1", "99999999-2222-4333-8444-555555555555", "user", "Two coroutines?", 1714723200.0, 1),
    ],
)
CONVERSATION_MEMORY_V3 = database(
    """
    CREATE TABLE pending_events (id INTEGER PRIMARY KEY, session_id TEXT, project TEXT, tool_name TEXT, compressed TEXT,
        timestamp INTEGER, created_at INTEGER);
    CREATE TABLE observations (id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, content TEXT NOT NULL,
        project TEXT NOT NULL, session_id TEXT, timestamp INTEGER NOT NULL, created_at INTEGER NOT NULL);
    """,
    observations=[(1, "Lid leaked", "A new gasket fixed it.", "kettle", "s-1", 1714723200000, 1714723200001)],
)
TLDW_OLD_PROMPTS = database(
    """
    CREATE TABLE Prompts (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, author TEXT, details TEXT,
        system TEXT, user TEXT);
    CREATE TABLE Keywords (id INTEGER PRIMARY KEY AUTOINCREMENT, keyword TEXT NOT NULL UNIQUE COLLATE NOCASE);
    CREATE TABLE PromptKeywords (prompt_id INTEGER, keyword_id INTEGER, PRIMARY KEY (prompt_id, keyword_id));
    """,
    Prompts=[(4, "Summary", "Mara", "For talks", "You summarize.", "Summarize {{talk}}.")],
    Keywords=[(1, "talks"), (2, "unused")],
    PromptKeywords=[(4, 1)],
)
DATABASE_SAMPLES: dict[str, tuple[str, bytes]] = {
    "bus.db": ("agentchatbus", AGENTCHATBUS),
    "origin.db": ("chatgpt_browser", ORIGIN_CONVERSATION),
    "memmem.db": ("conversation_memory", CONVERSATION_MEMORY_V3),
    "prompts.db": ("tldw", TLDW_OLD_PROMPTS),
}
CHAT_SAMPLES: Mapping[str, tuple[str, bytes]] = {**ASSISTANT_SAMPLES, **PEOPLE_SAMPLES, **DATABASE_SAMPLES}
