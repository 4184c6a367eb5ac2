"""AgentChatBus's content filter: finds secrets that were pasted into a message by mistake.

It knows only formats that are unlikely to be anything else, so that messages about tokens can be posted. It runs on the
event loop, so every pattern takes linear time, whatever the text, and is tried only if the text contains its literal.
"""

import re

from server.compat.agentchatbus.errors import BlockedContent

# The name of each format, a literal that is part of it, and its pattern.
_FORMATS = (
    ("AWS Access Key ID", "AKIA", r"AKIA[0-9A-Z]{16}"),
    ("AWS Temporary Access Key", "ASIA", r"ASIA[0-9A-Z]{16}"),
    # Only at the beginning of a run of such characters, which is therefore read once.
    ("JWT Token", ".eyJ", r"eyJ(?<![\w-]eyJ)[\w-]{20,}+\.eyJ[\w-]{20}"),
    ("GitHub Personal Access Token", "ghp_", r"ghp_[A-Za-z0-9]{36}"),
    ("GitHub OAuth Token", "gho_", r"gho_[A-Za-z0-9]{36}"),
    ("GitHub App Token", "gh", r"gh[sur]_[A-Za-z0-9]{36}"),
    ("Private Key", "PRIVATE KEY-----", r"-----BEGIN (?:[A-Z]{2,9} )?PRIVATE KEY-----"),
    ("OpenAI API Key", "T3BlbkFJ", r"sk-[A-Za-z0-9]{20,}T3BlbkFJ[A-Za-z0-9]{20}"),
    ("Slack Token", "xox", r"xox[bprs]-[0-9A-Za-z-]{10}"),
    ("Google API Key", "AIza", r"AIza[0-9A-Za-z_-]{35}"),
)
_SECRETS = tuple((name, literal, re.compile(pattern, re.ASCII)) for name, literal, pattern in _FORMATS)
# 32 bytes in Base64 as the value of a setting, whose name contains "azure".
_AZURE_VALUE = re.compile("=[A-Za-z0-9+/]{43}=")
_AZURE_NAME = re.compile(r"azure\w{10,95}\Z", re.ASCII | re.IGNORECASE)
_AZURE_NAME_MAX_CHARS = 100


def reject_secrets(text: str, error: str) -> None:
    """Raises BlockedContent with `error` if the text contains a secret."""
    pattern = find_secret(text)
    if pattern is not None:
        raise BlockedContent(error, pattern=pattern)


def find_secret(text: str) -> str | None:
    """Returns the kind of the first secret in a text, or None."""
    for name, literal, pattern in _SECRETS:
        if literal in text and pattern.search(text):
            return name
    return "Azure Storage Key" if "azure" in text.lower() and _has_azure_key(text) else None


def _has_azure_key(text: str) -> bool:
    names = (text[max(0, at - _AZURE_NAME_MAX_CHARS) : at] for at in map(re.Match.start, _AZURE_VALUE.finditer(text)))
    return any(map(_AZURE_NAME.search, names))
