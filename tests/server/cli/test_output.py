"""What commands write to their streams, and how they end."""

from server.cli import COMMANDS
from server.cli.output import pluralize
from tests.cases import each_case
from tests.server.cli.program import Program


# To `tag`, what looks like an option is a tag to remove.
@each_case("command", COMMANDS.keys() - {"tag"})
def test_wrong_usage_of_each_command_ends_its_process_with_code_2(program: Program, command: str) -> None:
    """Other tests run most commands in the process of the tests."""
    outcome = program.run_process(command, "--höher")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"Usage: florilegium {command} ")
    assert "Error: No such option '--höher'." in outcome.stderr


@each_case(
    ("count", "nouns", "expected"),
    [
        (0, "notes", "0 notes"),
        (1, "notes", "1 note"),
        (1_204, "notes", "1,204 notes"),
        (1, "prompts", "1 prompt"),
        (1, "media", "1 media"),
        (1, "entries", "1 entry"),
        (2, "entries", "2 entries"),
        (1, "usable keys", "1 usable key"),
    ],
)
def test_counts_agree_with_their_nouns(count: int, nouns: str, expected: str) -> None:
    assert pluralize(count, nouns) == expected
