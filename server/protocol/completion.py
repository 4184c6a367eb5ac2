"""The method `completion/complete`: suggestions for the arguments of prompts and resource templates."""

from collections.abc import Mapping, Sequence
from typing import Any

from config.errors import InvalidParams
from server.protocol.call import Call
from server.protocol.catalog import Completer
from server.protocol.catalog_access import CatalogAccess
from server.protocol.handlers import run_handler
from server.protocol.options import Result
from server.protocol.params import require_object, require_string

COMPLETIONS_MAX = 100


class CompletionMethod:
    """Returns at most COMPLETIONS_MAX values from the completer of the referenced argument."""

    def __init__(self, access: CatalogAccess, deadline_ms: int) -> None:
        self._access = access
        self._deadline_ms = deadline_ms

    async def complete(self, call: Call, params: Mapping[str, Any]) -> Result:
        argument = require_object(params, "argument")
        name, value = require_string(argument, "name"), require_string(argument, "value")
        completer = await self._completer(call, params.get("ref"), name)
        values: Sequence[str] = []
        if completer is not None:
            work = completer(call, value, _other_arguments(params))
            values = await run_handler(call, "completion", work, self._deadline_ms)
        first = list(values[:COMPLETIONS_MAX])
        return {"completion": {"values": first, "total": len(values), "hasMore": len(values) > len(first)}}

    async def _completer(self, call: Call, ref: Any, argument: str) -> Completer | None:
        match ref:
            case {"type": "ref/prompt", "name": str(name)}:
                prompt = await self._access.require_prompt(call, name)
                return next((a.completer for a in prompt.arguments if a.name == argument), None)
            case {"type": "ref/resource", "uri": str(uri)}:
                return self._access.require_template(call, uri).completers.get(argument)
        raise InvalidParams("ref: expected a prompt (ref/prompt) or a resource template (ref/resource)")


def _other_arguments(params: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns the arguments that the client has already filled in."""
    context = params.get("context")
    arguments = context.get("arguments") if isinstance(context, dict) else None
    return arguments if isinstance(arguments, dict) else {}
