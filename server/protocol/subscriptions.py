"""Subscriptions to changes: `resources/subscribe` of the legacy era and `subscriptions/listen` of the modern one."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from auth.principal import Principal
from config.errors import FlorilegiumError, InvalidParams, ResourceNotFound, Unavailable
from server.protocol.call import Call
from server.protocol.catalog_access import CatalogAccess
from server.protocol.messages import notification_message
from server.protocol.options import DispatcherOptions, Result
from server.protocol.params import require_object, require_string
from server.protocol.versions import Era

SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
_LIST_KINDS = {
    "toolsListChanged": "tools",
    "resourcesListChanged": "resources",
    "promptsListChanged": "prompts",
}


class StreamRegistry(Protocol):
    """Counts open streams, and knows when one has to end."""

    def enter(self, principal: Principal) -> AbstractContextManager[None]: ...

    async def is_open(self, principal: Principal) -> bool: ...


class SubscriptionMethods:
    def __init__(self, access: CatalogAccess, options: DispatcherOptions, streams: StreamRegistry) -> None:
        self._access = access
        self._options = options
        self._streams = streams

    async def subscribe(self, call: Call, params: Mapping[str, Any]) -> Result:
        uri = require_string(params, "uri")
        self._check_length("uri", uri)
        if not self._is_permitted(call, uri):
            raise resource_not_found(uri, call.era)
        if call.session is not None:
            subscriptions, limit = call.session.subscriptions, self._options.page_size
            if uri not in subscriptions and len(subscriptions) >= limit:
                raise Unavailable(f"a session can subscribe to at most {limit} resources")
            subscriptions.add(uri)
        return {}

    async def unsubscribe(self, call: Call, params: Mapping[str, Any]) -> Result:
        uri = require_string(params, "uri")
        if call.session is not None:
            call.session.subscriptions.discard(uri)
        return {}

    async def listen(self, call: Call, params: Mapping[str, Any]) -> Result:
        """Sends changes until the client closes the stream, loses access, or the server stops."""
        requested = require_object(params, "notifications")
        kinds = frozenset(kind for key, kind in _LIST_KINDS.items() if requested.get(key) is True)
        uris = self._resource_uris(call, requested)
        accepted: dict[str, Any] = {key: True for key, kind in _LIST_KINDS.items() if kind in kinds}
        if uris:
            accepted["resourceSubscriptions"] = uris
        meta = {SUBSCRIPTION_KEY: call.request_id}
        principal, changes = call.context.principal, self._access.catalog.changes
        with (
            self._streams.enter(principal),
            changes.listen(principal, kinds, frozenset(uris)) as listener,
        ):
            acknowledgement = {"_meta": meta, "notifications": accepted}
            await call.peer.notify(notification_message("notifications/subscriptions/acknowledged", acknowledgement))
            while await self._streams.is_open(principal):
                change = await listener.next(self._options.recheck_s)
                if change is not None:
                    method, body = change.as_notification()
                    await call.peer.notify(notification_message(method, {**body, "_meta": meta}))
        return {"_meta": meta}

    def _resource_uris(self, call: Call, requested: Mapping[str, Any]) -> list[str]:
        """Returns the URIs to subscribe to, as many as are allowed."""
        uris = requested.get("resourceSubscriptions") or []
        if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
            raise InvalidParams("resourceSubscriptions: expected a list of URIs")
        for uri in uris:
            self._check_length("resourceSubscriptions", uri)
        return [uri for uri in uris if self._is_permitted(call, uri)][: self._options.page_size]

    def _is_permitted(self, call: Call, uri: str) -> bool:
        """Whether the caller may read the resource, if it exists. The scheme of a URI is the name of its source."""
        is_of_source = call.context.principal.permits_source(uri.partition("://")[0])
        return is_of_source and self._access.permits_resources(call)

    def _check_length(self, name: str, uri: str) -> None:
        if len(uri) > self._options.uri_max_chars:
            raise InvalidParams(f"{name}: expected at most {self._options.uri_max_chars} characters, got {len(uri)}")


def resource_not_found(uri: str, era: Era) -> FlorilegiumError:
    """Each era has its own error for a resource that does not exist."""
    kind = InvalidParams if era is Era.MODERN else ResourceNotFound
    return kind("resource not found", {"uri": uri})
