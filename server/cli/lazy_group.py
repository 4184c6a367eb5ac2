"""A command group that imports a command only when it is used, so that `stdio` starts without the web stack."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from config.errors import ConfigurationError, DatabaseUnavailable, FlorilegiumError, InvalidParams


@contextmanager
def lasting_objects() -> Iterator[None]:
    """Exempts what is created in the block from garbage collection.

    Modules last as long as the process. Collecting while they are imported and once more at exit takes a quarter of the
    time of a short command.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class CommandError(click.ClickException):
    """A FlorilegiumError on the command line: its message on stderr, one line per sentence, and exit code 1."""

    def show(self, file: Any = None) -> None:
        for sentence in self.message.splitlines():
            click.echo(f"florilegium: {sentence}", err=True)


class CommandUsageError(CommandError):
    """Invalid settings or arguments, with exit code 2."""

    exit_code = 2


class LazyGroup(click.Group):
    """`lazy` maps a command name to "module:object". A FlorilegiumError is reported without a traceback."""

    def __init__(self, *args: Any, lazy: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = self._lazy.get(cmd_name)
        if target is None:
            return None
        module, _, name = target.partition(":")
        with lasting_objects():
            command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggests similar commands. click knows only commands that are loaded."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(error.command_name, possibilities=self._lazy, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ConfigurationError, InvalidParams) as error:
            raise CommandUsageError(error.message) from error
        except DatabaseUnavailable as error:
            raise CommandError(f"{error.message} ({error.reason})" if error.reason else error.message) from error
        except FlorilegiumError as error:
            raise CommandError(error.message) from error
