"""The address of a PostgreSQL database. It may contain a password, which no message or log may repeat."""

from urllib.parse import SplitResult, urlsplit

from config.errors import ConfigurationError

_SCHEMES = ("postgresql", "postgres")
_EXPECTED = "expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


def is_postgres_url(text: str) -> bool:
    return text.partition("://")[0] in _SCHEMES and "://" in text


def require_postgres_url(name: str, text: str) -> None:
    """Raises ConfigurationError unless the text is the address of a database."""
    _split(name, text)


def describe_url(text: str) -> str:
    """Returns host, port and database, for messages and logs."""
    parts = _split("address", text)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or "local socket"
    port = f":{parts.port}" if parts.port else ""
    return f"{host}{port}{parts.path}"


def _split(name: str, text: str) -> SplitResult:
    if not is_postgres_url(text):
        raise ConfigurationError(f"{name}: {_EXPECTED}")
    try:
        parts = urlsplit(text)
        has_database = len(parts.path) > 1 and parts.port != 0
    except ValueError:  # its message may contain a part of the password
        raise ConfigurationError(
            f"{name}: {_EXPECTED}; in the password, write /, ?, # and @ as %2F, %3F, %23 and %40"
        ) from None
    if not has_database:
        raise ConfigurationError(f"{name}: {_EXPECTED}, got no database")
    return parts
