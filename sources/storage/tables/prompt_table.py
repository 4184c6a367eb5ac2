"""The table of prompts. Their keywords are stored as tags."""

from collections.abc import Callable
from typing import Any

import msgspec

from sources.drafts import PromptDraft
from sources.records import SavedPrompt, SavedPromptArgument
from sources.storage.tables import validation
from sources.storage.tables.indexes import PROMPTS_INDEX
from sources.storage.tables.item_table import ComputedColumn, ItemTable, TableColumn, index_form_of

_decode_arguments: Callable[[Any], tuple[SavedPromptArgument, ...]] = msgspec.json.Decoder(
    tuple[SavedPromptArgument, ...]
).decode

PROMPTS: ItemTable[SavedPrompt, PromptDraft] = ItemTable(
    table="prompts",
    kind="prompt",
    record=SavedPrompt,
    key="id",
    columns=(
        TableColumn("name", validation.required_short_text, is_required=True),
        TableColumn("author", validation.short_text),
        TableColumn("details", validation.long_text),
        TableColumn("system_prompt", validation.long_text),
        TableColumn("user_prompt", validation.long_text),
        TableColumn("arguments", validation.json_text, "[]", _decode_arguments),
    ),
    hashed_columns=("name", "author", "details", "system_prompt", "user_prompt", "arguments", "tags"),
    index_forms=tuple(
        index_form_of(name) for name in ("name", "author", "details", "system_prompt", "user_prompt", "tags")
    ),
    index=PROMPTS_INDEX,
    computed=(ComputedColumn("id", "prompts.id"),),
)
