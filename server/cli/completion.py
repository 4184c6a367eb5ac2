"""`florilegium completion`: prints shell completion scripts."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_FLORILEGIUM_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell. For bash: eval "$(florilegium completion bash)"."""
    complete = get_completion_class(shell)
    assert complete is not None
    click.echo(complete(context.find_root().command, {}, "florilegium", _VARIABLE).source())
