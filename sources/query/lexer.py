"""Splits query text into lexemes: bare words, quoted text, operators, brackets and filters.

Accepts any text: what is not an operator or a filter is a bare word, and an unmatched quotation mark is a lexeme too.
"""

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from sources.text.segmentation import STOPWORDS

# -- command lines -----------------------------------------------------------------------------------------------------
# Recognizes command lines in queries: in `git rebase -i squash` the dash does not exclude anything.

# Commands whose names are no ordinary words. Others, such as find, make or python, would turn exclusions into text.
_COMMAND_NAMES = """
    adb ansible-playbook apk apt apt-get awk cd chgrp chmod chown clang cmake cp crontab curl df dig dnf docker-compose
    dpkg du egrep ffmpeg ffprobe fgrep g++ gcc gdb gh git gpg grep gunzip gzip iptables javac journalctl jq kubectl
    latexmk ldapsearch ldd ln ls lsof md5sum mkdir mv mvn mysqldump netstat nmap nohup npm npx nslookup nvcc openssl
    pandoc pdflatex pg_dump pg_restore pgrep pip pip3 pipx pkill pnpm podman ps psql pytest rclone rg rm rmdir rsync scp
    sed sftp sha256sum sqlite3 ssh ssh-keygen strace su sudo systemctl tar tcpdump traceroute tsc uname unzip useradd
    wget xargs yt-dlp yum zcat
"""
# Options that people type without their command, none of them a word that anyone would exclude.
_OPTION_NAMES = """
    al alh aux avz cvf cvzf czf la lah latr lh ltr rf rin rn tulpn tvf vv vvv xf xjf xvf xvzf xzf xzvf zcvf zxf zxvf
"""
_LONG_OPTION = re.compile(r"--[a-z]", re.IGNORECASE)
_COMMANDS = frozenset(_COMMAND_NAMES.split())
_OPTIONS = frozenset(_OPTION_NAMES.split())
_FOLDERS = (".", "..", "/", "~")
_PATH_BEGINNINGS = ("./", "../", "~/", "$(")
_SCRIPT_ENDINGS = (".sh", ".py", ".exe", ".bat", ".ps1")
_PUNCTUATION = ".,;:!?)"


def is_part_of_command(word: str) -> bool:
    """Returns whether a word is the name of a command, the path of a script, a folder as in `find . -name`, or an
    option with two dashes, which never excludes anything."""
    return (
        word in _COMMANDS
        or word in _FOLDERS
        or _LONG_OPTION.match(word) is not None
        or word.startswith(_PATH_BEGINNINGS)
        or word.endswith(_SCRIPT_ENDINGS)
    )


def is_option(word: str) -> bool:
    """Returns whether a word after a dash is an option even without a command before it: a single letter, an option
    with a value, one that is not a word, or one that is too common to be excluded (docker run -it)."""
    word = word.rstrip(_PUNCTUATION)
    return len(word) == 1 or "=" in word or word in _OPTIONS or word in STOPWORDS


class BareWord(Struct, frozen=True):
    """Text between spaces, as typed."""

    text: str


class QuotedText(Struct, frozen=True):
    """Text between quotation marks, as typed."""

    text: str


class FilterLexeme(Struct, frozen=True):
    """`name:value` with a known name. Includes an adjacent AND, because filters always restrict the search."""

    name: str
    value: str
    is_quoted: bool
    is_negated: bool


class Symbol(Struct, frozen=True):
    """An operator or a bracket. A leading minus is NOT."""

    symbol: Literal["AND", "OR", "NOT", "(", ")"]


class UnmatchedQuote(Struct, frozen=True):
    """A quotation mark without a counterpart."""


class OptionLexeme(Struct, frozen=True):
    """A word after a dash that is an option of a command and not an exclusion, without the dash."""

    text: str


class UnsupportedSyntax(Struct, frozen=True):
    """Syntax of other query languages that has no meaning here: NEAR and a leading caret."""

    syntax: str


Lexeme = BareWord | QuotedText | FilterLexeme | Symbol | UnmatchedQuote | OptionLexeme | UnsupportedSyntax

FILTER_NAMES = ("source", "library", "tag", "type", "sender", "after", "before", "title")

# Characters that word processors, other languages and East Asian keyboards use instead of the ASCII ones of the query
# language.
_ASCII_MARKS = str.maketrans(
    dict.fromkeys("“”„‟«»‹›＂「」『』｢｣《》〈〉〝〞〟❝❞", '"') | {"（": "(", "）": ")", "：": ":", "＊": "*"}
)

_APOSTROPHE = r"’(?=\w)"

# A minus excludes only at the start of a word and before a letter, a quotation mark or a bracket: -5 is a number,
# fox-trot a word, --flag an option. A quotation never starts right after a digit: 5" is a length. Between Hebrew
# letters, a quotation mark is part of an acronym. ‘ and ’ are quotation marks only around words, since ’ is also the
# apostrophe.
_LEXEME = re.compile(
    rf"""
      (?-i:AND\s++)? (?P<negated> (?<![^\s(]) - | (?-i:NOT\s++) )?
      (?P<filter> {"|".join(FILTER_NAMES)} ) : (?: "(?P<quoted_value> [^"]* )" | (?P<value> [^\s"()]+ ) )
      (?-i:\s+AND(?=\s))?
    | (?P<smiley> (?<!\S) [:;=] ['-]? [()]+ (?!\w) )
    | (?<![^\s(]) (?-i:NEAR) \s*+ \( (?P<near> [^()]* ) \)
    | (?<![^\s(]) (?P<caret> \^ ) (?= ["\w] )
    | (?<![^\s(]) - (?P<dashed> [^\W\d_] [^\s"()]* )
    | (?P<minus> (?<![^\s(]) - (?= ["(] ) )
    | (?<!\d) "(?P<quoted> [^"]* )"
    | (?<!\w) [‘‚] (?= (?> (?: [^\w‘‚"’] | {_APOSTROPHE} )* ) \w )
      (?P<single_quoted> (?> (?: [^‘‚"’] | {_APOSTROPHE} )* ) ) [’‘] (?!\w)
    | (?P<bracket> [()] )
    | (?P<word> (?: [^\s"()] | (?<=[\u05d0-\u05ea])"(?=[\u05d0-\u05ea]) )+ )
    | (?P<quote> " )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_DISTANCE = re.compile(r",\s*\d+\s*$")


def lexemes(text: str) -> Iterator[Lexeme]:
    """Yields the lexemes of a query in order."""
    text = text.translate(_ASCII_MARKS)
    is_command = False
    for match in _LEXEME.finditer(text):
        for lexeme in _lexemes_of(match, is_command=is_command):
            is_command = is_command or _is_command(lexeme)
            yield lexeme


def _is_command(lexeme: Lexeme) -> bool:
    return isinstance(lexeme, OptionLexeme) or (isinstance(lexeme, BareWord) and is_part_of_command(lexeme.text))


def _lexemes_of(found: re.Match[str], *, is_command: bool) -> Iterator[Lexeme]:
    """`is_command`: whether a command or an option precedes the match."""
    match found.lastgroup:
        case "near":
            yield UnsupportedSyntax("NEAR")
            yield from lexemes(_DISTANCE.sub("", found["near"]))
        case "dashed" if is_command or is_option(found["dashed"]):
            yield OptionLexeme(found["dashed"])
        case "dashed":
            yield Symbol("NOT")
            yield BareWord(found["dashed"])
        case "smiley":
            pass
        case _:
            yield _lexeme(found)


def _lexeme(match: re.Match[str]) -> Lexeme:
    if match["word"] is not None:
        return _word_or_operator(match["word"])
    if match["quoted"] is not None:
        return QuotedText(match["quoted"])
    if match["single_quoted"] is not None:
        return QuotedText(match["single_quoted"])
    if match["filter"] is not None:
        quoted = match["quoted_value"]
        value = match["value"] if quoted is None else quoted
        return FilterLexeme(match["filter"].lower(), value, quoted is not None, match["negated"] is not None)
    if match["minus"] is not None:
        return Symbol("NOT")
    if match["bracket"] is not None:
        return Symbol("(" if match["bracket"] == "(" else ")")
    return UnsupportedSyntax("^") if match["caret"] is not None else UnmatchedQuote()


def _word_or_operator(text: str) -> BareWord | Symbol:
    """Only upper-case operators are operators; `and` and `or` are words."""
    match text:
        case "AND" | "OR" | "NOT":
            return Symbol(text)
        case _:
            return BareWord(text)


# -- limits ------------------------------------------------------------------------------------------------------------
# Limits on the size of a query.


class QueryLimits(Struct, frozen=True):
    """How much of a query is used. Anything beyond is dropped, and `read_as` reports it."""

    max_chars: int = 1_000
    max_terms: int = 32
    max_nesting: int = 8
    max_prefixes: int = 4
    min_prefix_chars: int = 3
    max_phrase_tokens: int = 16
