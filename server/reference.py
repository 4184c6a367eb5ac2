"""The page docs/tools.md, written from the catalog: `python -m server.reference` prints it, a test keeps it true."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config.paths import DataRoot
from config.settings import Settings
from server.lifespan import build_catalog, build_knowledge
from server.protocol.catalog import Catalog, Tool
from server.protocol.schema import input_schema, output_schema
from sources.storage.sqlite import SqliteLibraries

_HEAD = """# Tools

Generated from the code by `make docs`. Names are advertised with underscores; the dotted form (`server.info`) is
accepted in a call. A tool whose scope the caller's credential lacks is neither listed nor callable.

Each client pays for a listed tool on each turn, so `tools/list` says less than this page: of an answer it names the
texts, lists and objects, and what six tools share (`retrieval`) it spells out in `knowledge_get` alone. The fifteen
tools of the usual list cost less than 4,000 tokens together.

## Two shapes

`knowledge_search` and `knowledge_get` answer in the canonical shape described below, or with `"shape": "compact"` in
the one that deep-research clients know:

```json
{
  "id": "notes://d0156a72-47e7-4c0d-bc6f-ca693097dc10",
  "title": "Upgrade plan",
  "text": "Drain the node first. If a pod fails, roll back with kubectl rollout undo.",
  "url": "https://kb.example.com/items/notes/d0156a72-47e7-4c0d-bc6f-ca693097dc10",
  "metadata": {
    "source": "notes",
    "score": 0.5383,
    "score_type": "fts_coverage",
    "created_at": "2026-11-15T05:24:44.000Z",
    "last_modified": "2026-11-15T05:24:44.000Z",
    "version": 1,
    "tags": ["work"],
    "loc": {"approx_offset": 38},
    "cost_tokens": 19
  }
}
```

`url` is a permalink under `public_url`, and `metadata` holds what else the canonical shape says; `source_url` there is
where a media item was taken from. A page of hits keeps all that is told of it as a whole (`session`, `sources`,
`next_offset`, …).

`search` and `fetch` are the pair that OpenAI's deep research asks for. `search` answers
`{"results": [{"id", "title", "url", "text"}]}`, with a `note` beside it only when a source did not answer or the query
was not read literally; a session holds nothing back there. `fetch` answers one item in the compact shape, with
`metadata.extent`: `whole`, or of a text longer than `retrieval_max_tokens` its `beginning`, the `passage` that was
found, or a `continuation`; `metadata.next_id` is then the id that reads on. A permalink is as good as an id.
"""


def tools_markdown(catalog: Catalog) -> str:
    return "\n".join([_HEAD, *(_tool_section(tool) for tool in catalog.tools.values())])


def _tool_section(tool: Tool) -> str:
    parts = [f"## `{tool.name}`", "", tool.description, "", f"Scope: `{tool.scope}`. {_nature(tool)}", ""]
    parts += ["Arguments:", "", *_fields(_whole_input(tool)), ""]
    if tool.output is not None:
        parts += ["Answer:", "", *_fields(output_schema(tool.output)), ""]
    return "\n".join(parts)


def _whole_input(tool: Tool) -> dict[str, Any]:
    """The listed arguments, with the inner fields that a list leaves out to stay small."""
    listed, whole = tool.as_listed()["inputSchema"], input_schema(tool.input)
    nested = {name: field for name, field in whole.get("properties", {}).items() if "properties" in field}
    return {**listed, "properties": listed.get("properties", {}) | nested}


def _nature(tool: Tool) -> str:
    if tool.hints.read_only_hint:
        return "Read-only."
    return "Writes; may destroy." if tool.hints.destructive_hint else "Writes."


def _fields(schema: Mapping[str, Any], indent: str = "") -> list[str]:
    required = schema.get("required", ())
    rows: list[str] = []
    for name, field in schema.get("properties", {}).items():
        need = "" if name in required else ", optional"
        about = f": {field['description']}" if "description" in field else ""
        rows.append(f"{indent}- `{name}` ({_kind(field)}{need}){about}")
        rows += _fields(field, indent + "  ")
    return rows or ([f"{indent}- none"] if not indent else [])


def _kind(field: Mapping[str, Any]) -> str:
    match field:
        case {"type": "array", "items": items}:
            return f"list of {_kind(items)}"
        case {"enum": values}:
            return " or ".join(f"`{value}`" for value in values)
        case {"anyOf": options}:
            return " or ".join(_kind(option) for option in options)
    return str(field.get("type", "any"))


def product_catalog() -> Catalog:
    """The catalog with default settings. Nothing is opened: the libraries are never asked for."""
    settings = Settings()
    libraries = SqliteLibraries(DataRoot(Path(settings.data_dir)), settings)
    return build_catalog(settings, libraries, build_knowledge(settings, libraries))


if __name__ == "__main__":
    sys.stdout.write(tools_markdown(product_catalog()))
