"""A group of commands of which each is imported only when it is needed: `stdio` must not pay for `serve`."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from config.errors import ConfigurationError, FlorilegiumError, InvalidParams


class Failure(click.ClickException):
    """An error of the tree as the command line tells it: its sentences on stderr, and exit code 1."""

    def show(self, file: Any = None) -> None:
        for sentence in self.message.splitlines():
            click.echo(f"florilegium: {sentence}", err=True)


class Misuse(Failure):
    """Settings or arguments that cannot be honoured."""

    exit_code = 2


class LazyGroup(click.Group):
    """`lazy` maps a name to "module:object". Errors of the tree end here and never become a traceback."""

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
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ConfigurationError, InvalidParams) as error:
            raise Misuse(error.message) from error
        except FlorilegiumError as error:
            raise Failure(error.message) from error
