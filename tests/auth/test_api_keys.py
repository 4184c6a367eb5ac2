"""API keys as text."""

import hashlib

import pytest

from auth.api_keys import has_shape, hash_of, is_api_key, new_secret


def test_a_new_key_has_the_shape_and_is_never_repeated() -> None:
    keys = {new_secret() for _ in range(100)}

    assert len(keys) == 100
    assert all(has_shape(key) and is_api_key(key) and len(key) == 47 for key in keys)


@pytest.mark.parametrize(
    "text",
    ["", "flo_", "flo_" + "A" * 42, "flo_" + "A" * 44, "flo_" + "A" * 42 + "=", "FLO_" + "A" * 43, " flo_" + "A" * 43],
)
def test_other_texts_do_not_have_the_shape(text: str) -> None:
    assert not has_shape(text)


def test_a_newline_at_the_end_is_not_overlooked() -> None:
    assert not has_shape(new_secret() + "\n")


def test_the_hash_is_plain_sha256() -> None:
    assert hash_of("flo_x") == hashlib.sha256(b"flo_x").digest()
