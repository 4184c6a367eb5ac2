"""How a server presents itself to MCP clients, and the limits that its dispatcher enforces."""

from typing import Any

from msgspec import Struct

from server.protocol.versions import Era

Result = dict[str, Any]


class DispatcherOptions(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    version: str
    page_size: int
    uri_max_chars: int = 2_000
    list_ttl_ms: int
    deadline_ms: int
    recheck_s: float
    elicitation_timeout_s: float
    has_dotted_names: bool = False

    def as_implementation(self) -> dict[str, str]:
        return {"name": self.name, "title": self.title, "version": self.version}

    def cacheable(self, result: Result, era: Era) -> Result:
        """Adds the modern era's cache hints. Results depend on the caller, so no shared cache may keep them."""
        if era is Era.MODERN:
            result["ttlMs"] = self.list_ttl_ms
            result["cacheScope"] = "private"
        return result
