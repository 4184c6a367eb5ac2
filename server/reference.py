"""Generates docs/tools.md from the catalog: `python -m server.reference` prints it, and a test compares it."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config.paths import DataRoot
from config.settings import Settings
from server.compat.agentchatbus.service import build_message_bus
from server.lifespan import build_catalog, build_knowledge
from server.protocol.catalog import Catalog, Tool
from server.protocol.schema import input_schema, output_schema
from sources.storage.sqlite import SqliteLibraries

_HEAD = """# Tools

This page is generated from the code by `make docs`. Names are listed with underscores; calls also accept the dotted
form (`server.info`). A tool whose scope the caller's credential lacks is neither listed nor callable.

Clients pay for every listed tool on every turn, so `tools/list` is shorter than this page: output schemas name only
strings, lists and objects, and the `retrieval` options that six tools share are described in `knowledge_get` only. The
fifteen tools of the default profile cost less than 4,000 tokens together.

## Canonical and compact results

`knowledge_search` and `knowledge_get` return the canonical shape described below. With `"shape": "compact"` they return
the shape that deep-research clients expect:

```json
{
  "id": "notes://d0156a72-47e7-4c0d-bc6f-ca693097dc10",
  "title": "Upgrade plan",
  "text": "Drain the node first. If a pod fails, roll back with kubectl rollout undo.",
  "url": "https://kb.example.com/items/notes/d0156a72-47e7-4c0d-bc6f-ca693097dc10?at=38#passage",
  "metadata": {
    "source": "notes",
    "score": 0.5383,
    "last_modified": "2026-11-15T05:24:44Z",
    "version": 1,
    "tags": ["work"],
    "loc": {"approx_offset": 38},
    "cost_tokens": 19
  }
}
```

`url` is a permalink under `public_url`; the page opens at the passage, which is marked. `metadata`
holds the other fields of the canonical shape; its `source_url` is where a media item came from. A page of hits keeps
the fields about the page as a whole (`session`, `sources`, `next_offset`, …).

`search` and `fetch` are the two tools that OpenAI's deep research requires. `search` returns
`{"results": [{"id", "title", "url", "text"}]}`, with a `note` only if a source failed or the query was not interpreted
literally; sessions do not hide items there. `fetch` returns one item in the compact shape. Its `metadata.extent` is
`whole`, or, for a text longer than `retrieval_max_tokens`, `beginning`, `passage` (the part that matched) or
`continuation`; `metadata.next_id` is then the id to fetch next. A permalink works wherever an id does.
"""


def tools_markdown(catalog: Catalog) -> str:
    return "\n".join([_HEAD, *(_tool_section(tool) for tool in catalog.tools.values())])


def _tool_section(tool: Tool) -> str:
    parts = [f"## `{tool.name}`", "", tool.description, "", f"Scope: `{tool.scope}`. {_effect(tool)}", ""]
    # The listed arguments, with the nested fields that `tools/list` omits.
    listed, full = tool.as_listed()["inputSchema"], input_schema(tool.input)
    properties = listed.get("properties", {})
    nested = {name: field for name, field in full.get("properties", {}).items() if "properties" in field}
    omitted = {name: field for name, field in nested.items() if "properties" not in properties[name]}
    parts += ["Arguments:", "", *_fields({**listed, "properties": properties | omitted}), ""]
    if tool.output is not None:
        parts += ["Result:", "", *_fields(output_schema(tool.output)), ""]
    return "\n".join(parts)


def _effect(tool: Tool) -> str:
    if tool.hints.read_only_hint:
        return "Read-only."
    return "Writes, and can delete or overwrite data." if tool.hints.destructive_hint else "Writes."


def _fields(schema: Mapping[str, Any], indent: str = "") -> list[str]:
    required = schema.get("required", ())
    rows: list[str] = []
    for name, field in schema.get("properties", {}).items():
        optional = "" if name in required else ", optional"
        description = f": {field['description']}" if "description" in field else ""
        rows.append(f"{indent}- `{name}` ({_type_name(field)}{optional}){description}")
        rows += _fields(field, indent + "  ")
    return rows or ([f"{indent}- none"] if not indent else [])


def _type_name(field: Mapping[str, Any]) -> str:
    match field:
        case {"type": "array", "items": items}:
            return f"list of {_type_name(items)}"
        case {"enum": values}:
            return " or ".join(f"`{value}`" for value in values)
        case {"anyOf": options}:
            return " or ".join(_type_name(option) for option in options)
    return str(field.get("type", "any"))


def product_catalog() -> Catalog:
    """Returns the catalog with default settings. No database is opened."""
    settings = Settings()
    libraries = SqliteLibraries(DataRoot(Path(settings.data_dir)), settings)
    bus = build_message_bus(libraries, settings)
    return build_catalog(settings, libraries, build_knowledge(settings, libraries), bus)


if __name__ == "__main__":
    sys.stdout.write(tools_markdown(product_catalog()))
