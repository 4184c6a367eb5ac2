"""Commands of operations that declare one: their options are the fields of the input."""

from collections.abc import Mapping
from typing import Any

import click
from msgspec import UNSET, to_builtins

from auth.context import ADMIN, WRITE
from server.cli.caller import admin_caller, library_caller
from server.cli.lazy_group import SettingsOverrides
from server.cli.options import admin_options, library_options, load_for_change
from server.cli.output import confirm, echo, print_json, print_table, strip_control_characters
from server.operations import operations_of
from server.operations.operation import CommandBinding, Operation

_TYPES = {"integer": click.INT, "number": click.FLOAT}


def find_commands(*subjects: str) -> dict[str, click.Command]:
    """Returns the commands of the operations of these subjects, or of all, by name."""
    return {
        binding.name: operation_command(operation, binding)
        for operation in operations_of(*subjects)
        for binding in operation.commands
    }


def add_commands(group: click.Group, subject: str) -> None:
    """Adds the commands of a subject that begin with the name of the group."""
    for name, command in find_commands(subject).items():
        prefix, _, child = name.partition(" ")
        if prefix == group.name and child:
            group.add_command(command, child)


def operation_command(operation: Operation, binding: CommandBinding) -> click.Command:
    is_admin = operation.scope == ADMIN or binding.is_account

    def run(
        overrides: SettingsOverrides, as_json: bool, user: str | None = None, yes: bool = False, **options: Any
    ) -> None:
        from server.protocol.schema import read_arguments  # noqa: PLC0415 - not for `--help`

        # What is not given has its default.
        values = {
            name: value for name, value in {**binding.values, **options}.items() if value not in (None, (), UNSET)
        }
        request = read_arguments(values, operation.input)
        if binding.question and not yes:
            confirm(binding.question.format_map(options))
        is_change = operation.method != "GET"
        settings = load_for_change(overrides) if is_change and is_admin else overrides.load().settings
        writes = is_change and operation.scope == WRITE
        opened = (
            admin_caller(settings, user=user, creates=binding.creates)
            if is_admin
            else library_caller(settings, user, creates=binding.creates, writes=writes)
        )
        with opened as call:
            output = to_builtins(call(operation, request))
        if as_json:
            print_json(output)
        elif binding.text:
            echo(binding.text.format_map({name: _cell(value) for name, value in output.items()}))
        else:
            print_output(output)

    run.__doc__ = binding.help or operation.description
    decorated = (admin_options if is_admin else library_options)(run)
    if binding.question:
        decorated = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")(decorated)
    if binding.is_account:
        decorated = click.option("--user", help="The person who does it. Default: the operator.")(decorated)
    # The description of an operation does not fit into one line of a list of commands.
    short_help = None if binding.help else f"{operation.summary}."
    command = click.command(binding.name.rpartition(" ")[2], short_help=short_help)(decorated)
    command.params[:0] = _parameters(operation, binding)
    return command


def _parameters(operation: Operation, binding: CommandBinding) -> list[click.Parameter]:
    schema = operation.input_schema()
    names = [name for name in schema.get("properties", {}) if name not in binding.values]
    parameters: list[click.Parameter] = []
    for name in sorted(names, key=lambda name: name not in binding.arguments):
        declared, is_required = schema["properties"][name], name in schema.get("required", ())
        kind: Any = click.Choice(declared["enum"]) if "enum" in declared else _TYPES.get(declared.get("type"), str)
        if name in binding.arguments:
            parameters.append(click.Argument([name], type=kind, required=is_required or not declared.get("default")))
            continue
        is_flag, is_list = declared.get("type") == "boolean", declared.get("type") == "array"
        default = declared.get("default")
        shown = bool(default) and not is_flag
        flag = name.replace("_", "-")
        # What is done by default can be switched off.
        option = [f"--{flag}/--no-{flag}" if is_flag and default else f"--{flag}", name]
        parameters.append(
            click.Option(
                option,
                type=None if is_flag else kind,
                is_flag=is_flag,
                multiple=is_list,
                required=is_required,
                default=None if is_list or is_flag else default,
                show_default=shown,
                help=declared.get("description"),
            )
        )
    return parameters


def print_output(output: Any) -> None:
    """Prints each field in a line, also those of objects, and lists of objects as tables."""
    for name, value in output.items():
        if isinstance(value, Mapping):
            print_output(value)
            continue
        if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
            rows = [[_cell(one) for one in row.values()] for row in value]
            print_table([title.upper().replace("_", " ") for title in value[0]], rows)
        elif value not in (None, "", [], ()):
            echo(f"{name.replace('_', ' ')}: {_cell(value)}")


def _cell(value: Any) -> str:
    if value in (None, ""):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping) and ("uri" in value or "item" in value):
        return _cell(value.get("uri") or value["item"])  # the rest of an item has no place in a cell
    text = (
        " ".join(map(_cell, value))
        if isinstance(value, list | tuple)
        else f"{value:,}"
        if type(value) is int
        else str(value)
    )
    return strip_control_characters(text)
