"""API keys as text."""

import hashlib

from auth.registry import PREFIX, generate_credential, has_key_prefix, hash_credential, is_credential
from tests.cases import each_case


def test_generated_keys_are_well_formed_and_unique() -> None:
    keys = {generate_credential(PREFIX) for _ in range(100)}

    assert len(keys) == 100
    assert all(is_credential(key, PREFIX) and has_key_prefix(key) and len(key) == 47 for key in keys)


@each_case(
    "text",
    ["", "flo_", "flo_" + "A" * 42, "flo_" + "A" * 44, "flo_" + "A" * 42 + "=", "FLO_" + "A" * 43, " flo_" + "A" * 43],
)
def test_other_text_is_not_well_formed(text: str) -> None:
    assert not is_credential(text, PREFIX)


def test_trailing_newline_is_not_well_formed() -> None:
    assert not is_credential(generate_credential(PREFIX) + "\n", PREFIX)


def test_hash_is_plain_sha256() -> None:
    assert hash_credential("flo_x") == hashlib.sha256(b"flo_x").digest()
