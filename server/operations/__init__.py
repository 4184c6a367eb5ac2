"""What can be done, declared once: REST with OpenAPI, MCP tools, commands and console forms are bound to it."""

# Read first: `operation.py` (what an operation declares). Every other module declares the operations of one subject,
# next to the functions that carry them out. `server/rest/routes.py` serves those with a path,
# `server/tools/source_tools.py` lists those with a tool, `server/cli/operation_commands.py` makes commands of those
# with a command, and `server/console/page_handler.py` shows those with a form. CONTRIBUTING.md has an example.

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.operations.operation import Operation

# In the order of the documentation. Modules are named and not imported, so that a command loads only those it needs.
SUBJECTS = [
    "knowledge",
    "ask",
    "library",
    "items",
    "manage",
    "duplicates",
    "source_items",
    "imports",
    "follows",
    "account",
    "keys",
    "own_data",
    "connection_test",
    "audit",
    "users",
    "sharing",
]
# None of their operations is an MCP tool, so a server that only gets MCP calls does not load them.
WITHOUT_TOOLS = frozenset(SUBJECTS) - {"knowledge", "items", "source_items", "sharing"}


def operations_of(*subjects: str) -> "list[Operation]":
    """Returns the operations of these subjects, or of all, in the order in which they are declared. A name with dots is
    that of a module elsewhere, such as one of the APIs in `server.compat`."""
    from server.operations.operation import Operation  # noqa: PLC0415 - as above

    names = (name if "." in name else f"server.operations.{name}" for name in subjects or SUBJECTS)
    modules = map(import_module, names)
    return [
        value
        for module in modules
        for value in vars(module).values()
        # Others are imported from the module that declares them.
        if isinstance(value, Operation) and value.handler.__module__ == module.__name__
    ]
