"""Forms of operations that declare one: a field for each value of the input, and what the operation returns."""

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins
from starlette.requests import Request
from starlette.responses import Response

from config.errors import InvalidParams
from server.console.page_handler import LibraryPage, PageFunction
from server.console.pages import form_error
from server.operations import operations_of
from server.operations.operation import FormBinding, Operation
from server.protocol.schema import read_arguments

FORMS_PATH = "/forms/"


class FormPages(LibraryPage):
    def pages(self) -> dict[str, tuple[PageFunction, PageFunction]]:
        """Returns the functions that show and run the form of each path."""
        return {
            FORMS_PATH + operation.console.path: self._functions(operation, operation.console)
            for operation in operations_of()
            if operation.console is not None
        }

    def _functions(self, operation: Operation, binding: FormBinding) -> tuple[PageFunction, PageFunction]:
        schema = operation.input_schema()
        fields = [
            {"name": name, "type": "text", **declared, "is_required": name in schema.get("required", ())}
            for name, declared in schema.get("properties", {}).items()
        ]

        async def page(request: Request, viewer: Any, values: Mapping[str, str], **shown: Any) -> Response:
            return await self.render(
                request,
                viewer,
                "form.html",
                **{"status": 200, "error": "", "output": None, **shown},
                title=operation.summary,
                description=operation.description,
                button=binding.button,
                fields=fields,
                values=values,
                section="",
            )

        async def show(request: Request) -> Response:
            return await page(request, await self.admit(request, operation), {})

        async def run(request: Request) -> Response:
            viewer = await self.admit(request, operation)
            values = await self._browser.check_form(request)
            try:
                given = {field["name"]: _value(field, values) for field in fields}
                present = {name: value for name, value in given.items() if value != ""}
                output = await self.run(viewer, operation, read_arguments(present, operation.input))
            except InvalidParams as error:
                return await page(request, viewer, values, error=form_error(error), status=error.status)
            return await page(request, viewer, values, output=to_builtins(output))

        return show, run


def _value(field: Mapping[str, Any], values: Mapping[str, str]) -> Any:
    text = values.get(field["name"], "").strip()
    if field["type"] == "boolean":
        return text == "on"
    if field["type"] == "array":
        return [part.strip() for part in text.split(",") if part.strip()]
    return text
