import pytest

from config.errors import ConfigurationError
from config.postgres.errors import describe_url, is_postgres_url, require_postgres_url
from tests.cases import each_case


def test_description_has_no_user_and_no_password() -> None:
    assert describe_url("postgresql://ada:secret@db.example:5433/kb?sslmode=require") == "db.example:5433/kb"
    assert describe_url("postgres://ada:secret@[::1]/kb") == "[::1]/kb"
    assert describe_url("postgres://ada:secret@one:5432,[::1]:5433,two/kb") == "one:5432,[::1]:5433,two/kb"


@each_case(
    "url", ["mysql://ada:secret@db/kb", "postgresql://ada:secret@db", "postgresql://ada:se/cret@db:5432/kb", "secret"]
)
def test_invalid_addresses_are_rejected_without_repeating_them(url: str) -> None:
    with pytest.raises(ConfigurationError, match="storage_url: expected postgresql://") as raised:
        require_postgres_url("storage_url", url)

    assert "secret" not in raised.value.message
    assert "cret" not in raised.value.message


def test_only_the_schemes_of_postgresql_are_recognized() -> None:
    assert is_postgres_url("postgres://h/d")
    assert not is_postgres_url("postgresql")
    assert not is_postgres_url("/var/lib/postgresql://")
