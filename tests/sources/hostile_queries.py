"""Query strings that break search engines: operators, quotes, punctuation, sixteen scripts, sizes, and FTS syntax.

Only those built from `SCRIPTS` contain words of `LIBRARY`, so most must match nothing.
"""

import itertools
import string
from collections.abc import Iterator

# For each script the text of one item and a word of it, which occurs nowhere else in this table.
SCRIPTS = {
    "latin": ("quixotic zebrafish", "quixotic"),
    "cyrillic": ("тихая гавань корабля", "гавань"),
    "greek": ("ήσυχο λιμάνι πλοίου", "λιμάνι"),
    "arabic": ("ميناء هادئ للسفن", "ميناء"),
    "hebrew": ("נמל שקט לאוניות", "נמל"),
    "devanagari": ("जहाज का शांत बंदरगाह", "बंदरगाह"),
    "bengali": ("জাহাজের শান্ত বন্দর", "বন্দর"),
    "tamil": ("கப்பலின் அமைதியான துறைமுகம்", "துறைமுகம்"),
    "telugu": ("ఓడ ప్రశాంతమైన రేవు", "రేవు"),
    "thai": ("ท่าเรืออันเงียบสงบ", "ท่าเรือ"),
    "khmer": ("កំពង់ផែស្ងប់ស្ងាត់", "កំពង់ផែ"),
    "georgian": ("გემის წყნარი ნავსადგური", "ნავსადგური"),
    "armenian": ("նավի հանգիստ նավահանգիստ", "նավահանգիստ"),
    "chinese": ("安静的港口停泊船只", "港口"),
    "japanese": ("静かなみなとのふね", "みなと"),
    "korean": ("조용한 항구의 배", "항구"),
}
LIBRARY = [text for text, _ in SCRIPTS.values()]

OPERATORS = [
    "AND", "OR", "NOT", "AND OR NOT", "NOT NOT NOT", "AND AND", "OR OR vvv", "vvv AND", "vvv OR", "vvv NOT",
    "NOT vvv", "vvv AND OR www", "vvv AND NOT", "(vvv", "vvv)", "()", "(())", ")(", "((((((((((vvv))))))))))",
    "(" * 500 + "vvv", "(vvv AND (www OR (xxx NOT (yyy))))", "-vvv", "--vvv", "-", "-- -", "- vvv", "-(vvv)",
    "-\"vvv\"", "NOT -vvv", "vvv -vvv", "and or not", "vvv and not www", "VVV OR", "NEAR", "NEAR(vvv www)",
    "NEAR(vvv www, 5)", "vvv NEAR www", "vvv NEAR/3 www", "NEAR(", "vvv AND (NEAR)", "AND(vvv)OR(www)",
]  # fmt: skip

QUOTES = [
    '"', '""', '"""', '""""', '"vvv', 'vvv"', '"vvv" "', '"vvv"www"xxx"', "'", "''", "'vvv", "vvv'", "what's vvv",
    "vvv''www", '"\'"', "'\"'", "“vvv”", "„vvv“", "«vvv»", "`vvv`", "´vvv´", '"vvv www', '"" vvv', '"*"', '"-"',
    '"AND"', '"(vvv"', 'vvv:"www', '" " " "', '"\\""', "\\\"vvv\\\"", 'title:"vvv', 'title:""',
]  # fmt: skip

FTS_SYNTAX = [
    "*", "**", "* *", "vvv*", "vv*", "v*", "*vvv", "vvv**", "vvv *", "\"vvv\"*", "\"vvv www\" *", "^", "^vvv",
    "^ vvv", "vvv ^www", "title : vvv", "{title content} : vvv", "{title content}:vvv", "-title:vvv", "- {title}: vvv",
    "content:vvv", "rowid:1", "rank:1", "notes_index:vvv", "notes_index MATCH 'vvv'", "vvv + www", "\"vvv\" + \"www\"",
    "vvv+www", "+vvv", "{vvv}", "{}", "{", "}", "[vvv]", "vvv:www:xxx", ":", "::", ":vvv", "vvv:", "bm25(vvv)",
    "highlight(notes_index, 0, '', '')", "snippet(vvv)", "rebuild", "integrity-check", "optimize", "delete-all",
    "vvv\\", "\\", "\\\\", "%", "_", "vvv%", "vvv_www", "LIKE '%'", "GLOB '*'", "REGEXP '.*'", ".*", "[a-z]*",
    "(?i)vvv", "@@vvv", "vvv & www", "vvv | www", "!vvv", "vvv <-> www", "vvv:*", "to_tsquery('vvv')", "vvv:A",
]  # fmt: skip

SQL = [
    "'; DROP TABLE notes; --", "\" OR 1=1 --", "' OR '1'='1", "1; SELECT * FROM sqlite_master", "vvv' UNION SELECT 1",
    "vvv\"; PRAGMA writable_schema=ON; --", "0x76767676", "?", "?1", ":name", "@name", "$name", "NULL", "null", "true",
    "-- vvv", "/* vvv */", "vvv;", ";", ";;", "ATTACH DATABASE '/tmp/x' AS x", "load_extension('x')", "%s %n",
    "{0} {vvv}", "${jndi:ldap://vvv}", "<script>vvv</script>", "../../etc/vvv", "vvv\r\nHost: www", "{{7*7}}",
]  # fmt: skip

FILTERS = [
    "source:", "source:vvv", "source:nowhere", "tag:", "tag:vvv", "tag:\"vvv www\"", "type:vvv", "sender:vvv",
    "after:vvv", "after:2026-13-45", "after:2026-01-01 before:2025-01-01", "before:0001-01-01", "after:9999-12-31",
    "before:9999-12-31 vvv", "title:vvv", "title:*", "title:-", "-tag:vvv", "tag:,,,", "tag:vvv,www,xxx",
    "sender:\"", "after:2026-01-01after:2026-01-02", "user:vvv", "user_id:1 vvv", "path:/vvv", "TAG:vvv", "tag :vvv",
]  # fmt: skip

ODD = [
    "", " ", "   \t\n  ", "\x00", "vvv\x00www", "\x00" * 100, "\x01\x02\x03", "\x7f", "\u200b", "\u200b\u200c\u200d",
    "\ufeff", "\ufffe", "\uffff", "\u202evvv\u202c", "\u2028vvv\u2029", "\U000e0001",
    "\u0301\u0301\u0301", "v" + "\u0301" * 500, "👩‍💻", "👍🏽", "🇩🇪🇫", "❤\ufe0f", "\U0010ffff", "ﷺ", "ﬀ", "ß", "İ", "ı",
    "Ǆ", "ⅷ", "①②③", "½", "²", "𝕍𝕍𝕍", "ｖｖｖ", "C++", "C#", ".NET", "node.js", "a@b.co", "10:30", "1,000.50",
    "v1.2.3-rc.4", "192.168.0.1", "::1", "https://example.org/?q=vvv&x=1#y", "file:///vvv", "#vvv", "@vvv",
    "vvv/www", "vvv\\www", "fox-trot-vvv", "camelCaseVvv", "snake_case_vvv", "...", "…", "—", "!?!?", "¿vvv?", "0",
    "-1", "1e309", "NaN", "inf", "00000000-0000-0000-0000-000000000000", "a", "ab", "I", "the of and to a in is it",
    "who what why how",
]  # fmt: skip


def _sizes() -> Iterator[str]:
    yield "v" * 1_048_576
    yield "vvv " * 262_144
    yield "vvv OR " * 150_000
    yield '"' * 1_048_576
    yield "(" * 1_048_576
    yield "vvv* " * 5_000
    yield "-vvv " * 5_000
    yield "v" * 999 + " " + "w" * 999
    yield "港" * 300_000
    yield " ".join(f"vvv{n}" for n in range(20_000))
    yield "\n" * 1_048_576
    yield "e\u0301" * 200_000


def _punctuation() -> Iterator[str]:
    for mark in string.punctuation:
        yield mark * 2
        yield f"{mark}vvv"
        yield f"vvv{mark}www{mark}"


def _scripts() -> Iterator[str]:
    for text, word in SCRIPTS.values():
        yield text
        yield f'"{word}"'
        yield f"{word} AND NOT {word}"
        yield f"vvv {word} ("
        yield word[: max(3, len(word) // 2)] + "*"


def hostile_queries() -> list[str]:
    literal = (OPERATORS, QUOTES, FTS_SYNTAX, SQL, FILTERS, ODD)
    return list(dict.fromkeys(itertools.chain(*literal, _punctuation(), _scripts(), _sizes())))
