"""Declares REST operations where their handlers are: `@operation(...)` on a method, and `operations_of` its service."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from config.settings import Settings
from server.operations.operation import Operation, service_operation
from server.rest.errors import Unprocessable

if TYPE_CHECKING:
    from server.middleware import ErrorFormat

HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])


def operation(
    route: str,
    summary: str,
    tools: tuple[str, ...],
    *,
    errors: tuple[int, ...] = (),
    from_settings: Callable[[Settings], Mapping[str, Any]] = lambda _settings: {},
    **fields: Any,
) -> Callable[[HandlerT], HandlerT]:
    """`route` is a method and a path, such as "GET /events". The handler's name is the operation's id, and its
    docstring the description.

    `errors` are statuses besides the usual ones; `from_settings` returns those fields that depend on the settings.
    """
    method, path = route.split(" ")

    def declare(handler: HandlerT) -> HandlerT:
        declared = {
            "id": handler.__name__,
            "method": method,
            "path": path,
            "summary": summary,
            "description": " ".join((handler.__doc__ or "").split()),
            "tools": tools,
            "error_statuses": frozenset(errors),
        }
        handler.__dict__["operation"] = (declared | fields, from_settings)
        return handler

    return declare


def operations_of(service: object, error_format: "ErrorFormat", settings: Settings) -> list[Operation]:
    """Returns the operations of a service of conversations in the order in which its class declares them."""
    operations = []
    for name, handler in vars(type(service)).items():
        if declared := getattr(handler, "operation", None):
            fields, from_settings = declared
            _, input_type, *_, response = get_type_hints(handler).values()
            common = {"error_format": error_format, "input_error": Unprocessable, "source": "chats"}
            types = {"input": input_type, "response": response}
            operations.append(
                service_operation(
                    handler=getattr(service, name), **{**types, **common, **fields, **from_settings(settings)}
                )
            )
    return operations
