"""Signed state is valid for one principal, method and set of arguments, for ten minutes."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.context import Owner
from config.errors import InvalidParams
from server.protocol.call import LIFETIME_S, RequestStateSigner
from tests.cases import each_case
from tests.server.mutated_messages import JSON
from tests.server.protocol.dispatcher_fixture import make_principal

ADA = make_principal("ada").owner()
BEN = make_principal("ben").owner()
PARAMS = {"name": "ask", "arguments": {"text": "hello"}}


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@given(JSON, JSON)
def test_signed_state_is_verified_for_the_same_call_of_the_same_principal(state: Any, arguments: Any) -> None:
    signer, params = RequestStateSigner(), {"name": "ask", "arguments": arguments}

    signed = signer.sign(state, ADA, "tools/call", params)

    assert signer.verify(signed, ADA, "tools/call", params) == state


def test_the_order_of_arguments_does_not_matter() -> None:
    signer = RequestStateSigner()
    signed = signer.sign(1, ADA, "tools/call", {"name": "ask", "arguments": {"a": 1, "b": 2}})

    assert signer.verify(signed, ADA, "tools/call", {"arguments": {"b": 2, "a": 1}, "name": "ask"}) == 1


@each_case(
    ("owner", "method", "params"),
    [
        (BEN, "tools/call", PARAMS),
        ((ADA[0], "another client", ADA[2]), "tools/call", PARAMS),
        ((ADA[0], ADA[1], ADA[2] + 1), "tools/call", PARAMS),
        (ADA, "prompts/get", PARAMS),
        (ADA, "tools/call", {**PARAMS, "name": "other"}),
        (ADA, "tools/call", {**PARAMS, "arguments": {"text": "other"}}),
        (ADA, "tools/call", {**PARAMS, "uri": "x://y"}),
        (ADA, "tools/call", {"name": "ask"}),
    ],
)
def test_state_of_another_call_is_rejected(owner: Owner, method: str, params: dict[str, Any]) -> None:
    signer = RequestStateSigner()
    signed = signer.sign({"step": 1}, ADA, "tools/call", PARAMS)

    with pytest.raises(InvalidParams, match="requestState: expected the value of the last result"):
        signer.verify(signed, owner, method, params)


def test_state_with_any_bit_changed_is_rejected() -> None:
    signer = RequestStateSigner()
    raw = base64.urlsafe_b64decode(signer.sign({"step": 1}, ADA, "tools/call", PARAMS))

    for position in range(len(raw) * 8):
        changed = bytearray(raw)
        changed[position // 8] ^= 1 << position % 8
        with pytest.raises(InvalidParams):
            signer.verify(base64.urlsafe_b64encode(changed).decode(), ADA, "tools/call", PARAMS)


def test_state_is_valid_until_it_expires() -> None:
    clock = Clock()
    signer = RequestStateSigner(clock=clock)
    signed = signer.sign("s", ADA, "tools/call", PARAMS)

    clock.now += LIFETIME_S - 0.001
    assert signer.verify(signed, ADA, "tools/call", PARAMS) == "s"

    clock.now += 0.001
    with pytest.raises(InvalidParams, match="expired"):
        signer.verify(signed, ADA, "tools/call", PARAMS)


def test_state_of_another_process_is_rejected() -> None:
    signed = RequestStateSigner().sign("s", ADA, "tools/call", PARAMS)

    with pytest.raises(InvalidParams):
        RequestStateSigner().verify(signed, ADA, "tools/call", PARAMS)


@given(
    st.text(alphabet=st.characters(codec=None, categories=None))
    | st.binary().map(lambda b: base64.b64encode(b).decode())
)
def test_arbitrary_text_is_rejected(text: str) -> None:
    with pytest.raises(InvalidParams):
        RequestStateSigner().verify(text, ADA, "tools/call", PARAMS)
