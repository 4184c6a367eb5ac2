"""Generates calls that name things of another user, from schemas and from samples."""

import random
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from server.profiles import PROFILE_NAMES
from tests.attack.app_client import AttackRequest
from tests.attack.surface import JsonSchema, MethodTarget, RouteTarget, Surface, Target, ToolTarget
from tests.attack.tenants import Tenant, own_tag
from tests.compatibility.sample_requests import SampleRequest, fill_placeholders
from tests.server.clients import JSON_AND_EVENTS, message, modern_headers, modern_params

_WORDS = ("galleon", "sail", "harbour", "*", "the", "gal*", '"under sail"', "tag:x", "")
_QUERY_FIELDS = ("query", "q", "text", "content", "search", "title", "value", "topic")
_IDENTIFIERS = re.compile(
    r"id|uri|url|path|cursor|session|token|handle|name|thread|job|key|before|after", re.IGNORECASE
)
_SCHEMA_DEPTH_MAX = 4
_LISTEN_S = 0.02
_STREAMS = frozenset(("subscriptions/listen",))


class CallGenerator:
    """Generates calls of one attacker against one victim. The same random generator gives the same calls."""

    def __init__(self, surface: Surface, victim: Tenant, attacker: Tenant | None, rng: random.Random) -> None:
        self._surface = surface
        self._victim = victim
        self._attacker = attacker
        self._rng = rng
        self._known = [value for values in victim.known.values() for value in values]
        self._texts = [value for value in self._known if isinstance(value, str)]

    def generate(self, target: Target) -> AttackRequest:
        match target:
            case ToolTarget():
                return self._mcp("tools/call", target.name, {"name": target.name, "arguments": self._arguments(target)})
            case MethodTarget():
                return self._mcp(target.name, target.name, self._value("", target.schema))
            case RouteTarget():
                return self._sample(target) if target.samples and self._chance(0.5) else self._route(target)

    # -- MCP ---------------------------------------------------------------------------------------------------------

    def _mcp(self, method: str, target: str, params: Mapping[str, Any]) -> AttackRequest:
        path = self._rng.choice(("/mcp", "/mcp/full", f"/mcp/{self._rng.choice(PROFILE_NAMES)}"))
        listen_s = _LISTEN_S if method in _STREAMS else 0.0
        if self._chance(0.6):
            body = msgspec.json.encode(message(method, modern_params(params), 1))
            return AttackRequest(target, "POST", path, modern_headers(method, params), body, listen_s)
        own = self._attacker.session_id if self._attacker is not None and self._chance(0.5) else None
        headers = {**JSON_AND_EVENTS, "Mcp-Session-Id": own or self._victim.session_id}
        path = "/mcp" if own else path
        return AttackRequest(target, "POST", path, headers, msgspec.json.encode(message(method, params, 1)), listen_s)

    def _arguments(self, target: ToolTarget) -> dict[str, Any]:
        generated: dict[str, Any] = self._value("", target.schema)
        if not target.samples or self._chance(0.4):
            return generated
        sample = fill_placeholders(self._rng.choice(target.samples), self._victim.values)
        extra = [name for name in generated if name not in sample and self._chance(0.3)]
        return {**sample, **{name: generated[name] for name in extra}}

    # -- REST --------------------------------------------------------------------------------------------------------

    def _sample(self, target: RouteTarget) -> AttackRequest:
        sample: SampleRequest = self._rng.choice(target.samples)
        values = self._victim.values
        headers = {name: str(fill_placeholders(value, values)) for name, value in sample.headers.items()}
        body = sample.body if isinstance(sample.body, bytes) else b""
        if sample.body is not None and not isinstance(sample.body, bytes):
            body = msgspec.json.encode(fill_placeholders(sample.body, values))
            headers = {"Content-Type": "application/json", **headers}
        return AttackRequest(target.name, sample.method, fill_placeholders(sample.path, values), headers, body)

    def _route(self, target: RouteTarget) -> AttackRequest:
        path, query, headers, body = target.path, {}, {"Content-Type": "application/json"}, b""
        for parameter in target.parameters:
            if not parameter.is_required and not self._chance(0.4):
                continue
            text = str(self._value(parameter.name, parameter.schema))
            match parameter.place:
                case "path":
                    path = path.replace("{" + parameter.name + "}", quote(text, safe=""))
                case "query":
                    query[parameter.name] = text
                case "header":
                    headers[parameter.name] = text.encode("ascii", "ignore").decode()
        if target.body is not None:
            body = msgspec.json.encode(self._value("", target.body))
        full = f"{path}?{urlencode(query)}" if query else path
        return AttackRequest(target.name, target.method, full, headers, body)

    # -- values ------------------------------------------------------------------------------------------------------

    def _value(self, name: str, schema: JsonSchema, depth: int = 0) -> Any:
        schema = self._resolve(schema)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        if choices := schema.get("anyOf") or schema.get("oneOf"):
            described = [choice for choice in choices if choice.get("type") != "null"]
            return self._value(name, self._rng.choice(described), depth)
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                items = schema.get("items", {})
                return [self._value(name, items, depth + 1) for _ in range(self._rng.randint(1, 2))]
            case "integer" | "number":
                return self._number(name)
            case "boolean":
                return self._chance(0.5)
            case _:
                return self._text(name)

    def _resolve(self, schema: JsonSchema) -> JsonSchema:
        reference = schema.get("$ref")
        return self._surface.definitions.get(reference.rpartition("/")[2], {}) if reference else schema

    def _object(self, schema: JsonSchema, depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        share = 0.35 if depth < _SCHEMA_DEPTH_MAX else 0.0
        value = {
            name: self._value(name, inner, depth + 1)
            for name, inner in schema.get("properties", {}).items()
            if name in required or self._chance(share * (2 if _IDENTIFIERS.search(name) else 1))
        }
        if "where" in value:
            # A selection by a filter must not match the attacker's own items: their deletion would look like a leak.
            value["where"]["tag"] = own_tag(self._victim.name)
        return value

    def _number(self, name: str) -> int:
        known = [value for value in self._victim.known.get(name.lower(), ()) if isinstance(value, int)]
        return self._rng.choice([*known, 0, 1, 2, 5, 10, 50])

    def _text(self, name: str) -> str:
        """Returns a value that the victim got in a field of this name, any other identifier of the victim, or words."""
        same_field = self._victim.known.get(name.lower(), ())
        if same_field and self._chance(0.7):
            return str(self._rng.choice(same_field))
        if name.lower() in _QUERY_FIELDS and self._chance(0.8):
            return self._rng.choice(_WORDS)
        if name == "source" or self._chance(0.1):
            return self._rng.choice(_WORDS)
        return self._rng.choice(self._texts)

    def _chance(self, probability: float) -> bool:
        return self._rng.random() < probability
