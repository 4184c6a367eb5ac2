"""The page docs/tools.md, written from the catalog: `python -m server.reference` prints it, a test keeps it true."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config.paths import DataRoot
from config.settings import Settings
from server.lifespan import build_catalog, build_knowledge
from server.protocol.catalog import Catalog, Tool
from server.protocol.schema import output_schema
from sources.storage.sqlite import SqliteLibraries

_HEAD = """# Tools

Generated from the code by `make docs`. Names are advertised with underscores; the dotted form (`server.info`) is
accepted in a call. A tool whose scope the caller's credential lacks is neither listed nor callable.
"""


def tools_markdown(catalog: Catalog) -> str:
    return "\n".join([_HEAD, *(_tool_section(tool) for tool in catalog.tools.values())])


def _tool_section(tool: Tool) -> str:
    listed = tool.as_listed()
    parts = [f"## `{tool.name}`", "", tool.description, "", f"Scope: `{tool.scope}`. {_nature(tool)}", ""]
    parts += ["Arguments:", "", *_fields(listed["inputSchema"]), ""]
    if tool.output is not None:
        parts += ["Answer:", "", *_fields(output_schema(tool.output)), ""]
    return "\n".join(parts)


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
