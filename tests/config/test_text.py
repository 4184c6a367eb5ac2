"""Characters that cannot be stored."""

from hypothesis import given
from hypothesis import strategies as st

from config.numbers import UNSTORABLE, replace_unstorable


def test_nul_and_lone_surrogates_are_replaced() -> None:
    assert replace_unstorable("a\0b\ud800c\udfff") == "a\ufffdb\ufffdc\ufffd"
    assert replace_unstorable("a\0b", " ") == "a b"


@given(st.text(st.characters(categories=["Cs", "Cc", "L"])))
def test_result_can_be_encoded_and_contains_no_nul(text: str) -> None:
    result = replace_unstorable(text)

    assert b"\0" not in result.encode()
    assert not UNSTORABLE.search(result)
