"""Commit messages extracted from shell commands; messages that a shell must evaluate are left out."""

from hypothesis import given
from hypothesis import strategies as st

from sources.importers.formats.session_observations import commit_messages
from tests.cases import each_case


@each_case(
    ("command", "messages"),
    [
        ("git commit -m 'auth: refuse tokens'", ("auth: refuse tokens",)),
        ('git add . && git commit -am "fix #12: y" -m body; git push', ("fix #12: y\n\nbody",)),
        ("git commit --message=one\ngit commit --message two", ("one", "two")),
        ("A=1 git -C a/b -c user.name=x commit -m z", ("z",)),
        ("(cd x && git commit -m z) || true", ("z",)),
        (
            "git commit -m \"$(cat <<'EOF'\nSubject (one)\n\nBody & more; $5\nEOF\n)\"",
            ("Subject (one)\n\nBody & more; $5",),
        ),
    ],
)
def test_message_is_extracted_from_the_command(command: str, messages: tuple[str, ...]) -> None:
    assert commit_messages(command) == messages


@each_case(
    "command",
    [
        "",
        "git commit",
        "git commit --amend --no-edit",
        "git commit -F message.txt",
        "git commit -m",
        "git commit -m ''",
        'git commit -m "$MESSAGE"',
        'git commit -m "$(date)"',
        "git commit -m `date`",
        "git commit -m 'does not end",
        "git log --grep commit -m x",
        "echo git commit -m x",
        "grep -m 1 commit git",
    ],
)
def test_other_commands_have_no_message(command: str) -> None:
    assert commit_messages(command) == ()


@given(st.text())
def test_any_command_is_accepted(command: str) -> None:
    assert all(message.strip() == message != "" for message in commit_messages(command))


@given(st.text(st.characters(codec="utf-8", exclude_characters="'$`\0"), min_size=1))
def test_quoted_message_is_unchanged(text: str) -> None:
    messages = commit_messages(f"git commit -m '{text}'")

    assert messages in ((), (text.strip(),))
    assert messages or not text.strip() or set(text) <= set("();<>|&\n")
