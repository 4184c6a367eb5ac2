"""Messages of commits, read from the shell commands that made them. What a shell would have to work out first, a
variable or the output of a program, is not guessed."""

import re
import shlex
from collections.abc import Iterator, Sequence

# The way in which agents write messages of several lines.
_HERE_DOCUMENT = re.compile(r"\$\(cat <<-?\s*(['\"])(\w+)\1\n(?P<text>.*)\n\s*\2\s*\)\Z", re.DOTALL)
_ASSIGNMENT = re.compile(r"\w+=")
_SHORT_FLAGS = re.compile(r"-[a-ln-zA-Z]*m\Z")
# Options of git itself that take the next word.
_TAKE_A_WORD = frozenset(("-C", "-c", "--git-dir", "--work-tree"))
_SEPARATORS = frozenset("();<>|&\n")


def commit_messages(command: str) -> tuple[str, ...]:
    """Of each `git commit` in a command line that says its message itself."""
    try:
        words = _words(command)
    except ValueError:  # a quotation that does not end
        return ()
    return tuple(message for simple in _simple_commands(words) if (message := _message(simple)))


def _words(command: str) -> Sequence[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    return list(lexer)


def _simple_commands(words: Sequence[str]) -> Iterator[Sequence[str]]:
    run: list[str] = []
    for word in words:
        if word and set(word) <= _SEPARATORS:
            yield run
            run = []
        else:
            run.append(word)
    yield run


def _message(words: Sequence[str]) -> str | None:
    """Its paragraphs, one for each `-m`."""
    arguments = _arguments_of_commit(words)
    paragraphs = list(map(_literal, _values(arguments)))
    if not paragraphs or None in paragraphs:
        return None
    return "\n\n".join(text for text in paragraphs if text).strip() or None


def _arguments_of_commit(words: Sequence[str]) -> Sequence[str]:
    at = next((n for n, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    if words[at : at + 1] != ["git"]:
        return ()
    at += 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _TAKE_A_WORD else 1
    return words[at + 1 :] if words[at : at + 1] == ["commit"] else ()


def _values(arguments: Sequence[str]) -> Iterator[str]:
    for at, word in enumerate(arguments):
        if word == "--message" or _SHORT_FLAGS.match(word):
            yield from arguments[at + 1 : at + 2]
        elif word.startswith("--message="):
            yield word.removeprefix("--message=")


def _literal(text: str) -> str | None:
    document = _HERE_DOCUMENT.match(text)
    if document is not None:
        return document["text"].strip()
    return None if "$" in text or "`" in text else text.strip()
