"""Extracts commit messages from the shell commands that created the commits. Messages that a shell would have to
evaluate first, such as variables or command output, are left out."""

import re
import shlex
from collections.abc import Iterator, Sequence

# How agents write messages of several lines.
_HERE_DOCUMENT = re.compile(r"\$\(cat <<-?\s*+(['\"])(\w+)\1\n(?P<text>.*)\n[^\S\n]*+\2\s*+\)\Z", re.DOTALL)
_ASSIGNMENT = re.compile(r"\w+=")
_SHORT_MESSAGE_FLAG = re.compile(r"-[a-ln-zA-Z]*m\Z")
# Options of git itself that are followed by a value.
_OPTIONS_WITH_VALUE = frozenset(("-C", "-c", "--git-dir", "--work-tree"))
_SEPARATORS = frozenset("();<>|&\n")


def commit_messages(command: str) -> tuple[str, ...]:
    """Returns the message of each `git commit` in a command line."""
    try:
        words = _split_words(command)
    except ValueError:  # an unterminated quotation
        return ()
    return tuple(message for simple in _simple_commands(words) if (message := _commit_message(simple)))


def _split_words(command: str) -> Sequence[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    return list(lexer)


def _simple_commands(words: Sequence[str]) -> Iterator[Sequence[str]]:
    command: list[str] = []
    for word in words:
        if word and set(word) <= _SEPARATORS:
            yield command
            command = []
        else:
            command.append(word)
    yield command


def _commit_message(words: Sequence[str]) -> str | None:
    """Joins the paragraphs, one for each `-m`."""
    paragraphs = [_literal_text(value) for value in _message_arguments(_commit_arguments(words))]
    if not paragraphs or None in paragraphs:
        return None
    return "\n\n".join(text for text in paragraphs if text).strip() or None


def _commit_arguments(words: Sequence[str]) -> Sequence[str]:
    at = next((n for n, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    if words[at : at + 1] != ["git"]:
        return ()
    at += 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _OPTIONS_WITH_VALUE else 1
    return words[at + 1 :] if words[at : at + 1] == ["commit"] else ()


def _message_arguments(arguments: Sequence[str]) -> Iterator[str]:
    for at, word in enumerate(arguments):
        if word == "--message" or _SHORT_MESSAGE_FLAG.match(word):
            yield from arguments[at + 1 : at + 2]
        elif word.startswith("--message="):
            yield word.removeprefix("--message=")


def _literal_text(text: str) -> str | None:
    """Returns the text that a shell would pass on, or None if it would have to be evaluated."""
    document = _HERE_DOCUMENT.match(text)
    if document is not None:
        return document["text"].strip()
    return None if "$" in text or "`" in text else text.strip()
