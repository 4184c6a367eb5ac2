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
    """Returns the hosts with their ports, and the database, for messages and logs."""
    parts = _split("address", text)
    return f"{_hosts(parts) or 'local socket'}{parts.path}"


def has_several_hosts(text: str) -> bool:
    return "," in _hosts(urlsplit(text))


def _hosts(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _split(name: str, text: str) -> SplitResult:
    if not is_postgres_url(text):
        raise ConfigurationError(f"{name}: {_EXPECTED}")
    try:
        parts = urlsplit(text)
        # PostgreSQL's own clients accept several hosts, separated by commas.
        ports = [urlsplit(f"//{host}").port for host in _hosts(parts).split(",")]
    except ValueError:  # its message may contain a part of the password
        raise ConfigurationError(
            f"{name}: {_EXPECTED}; in the password, write /, ?, # and @ as %2F, %3F, %23 and %40"
        ) from None
    if len(parts.path) < 2 or 0 in ports:
        raise ConfigurationError(f"{name}: {_EXPECTED}, got no database")
    return parts
