"""Characters that cannot be stored as text."""

import re

# NUL ends a C string inside SQLite and is rejected by PostgreSQL; a lone surrogate cannot be encoded as UTF-8.
UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def replace_unstorable(text: str, replacement: str = "\ufffd") -> str:
    return UNSTORABLE.sub(replacement, text)
