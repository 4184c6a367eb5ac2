"""Signing keys from a secret and from files, each for one algorithm only."""

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from auth.signing_keys import SigningKeys, accepted_algorithms, load_signing_keys
from config.errors import ConfigurationError
from tests.auth.auth_fixture import ISSUER, SECRET, make_settings, write
from tests.auth.issuers import b64, eddsa, es256, jwks, rs256
from tests.cases import each_case


def load_from_file(path: Path, content: bytes, **changes: Any) -> SigningKeys:
    keys = load_signing_keys(make_settings(jwt_key_file=write(path / "keys", content), jwt_issuer=ISSUER, **changes))
    assert keys
    return keys


def test_no_keys_are_loaded_without_configuration() -> None:
    assert load_signing_keys(make_settings()) is None


async def test_secret_is_for_hs256_only_and_any_kid() -> None:
    keys = load_signing_keys(make_settings(jwt_secret=SECRET))

    assert keys
    assert await keys.find("HS256", None)
    assert await keys.find("HS256", "any") == await keys.find("HS256", None)
    assert await keys.find("RS256", None) is None


@each_case(
    ("changes", "problem"),
    [
        ({"jwt_previous_secrets": (SECRET,)}, "jwt_previous_secrets: expected them together with jwt_secret"),
        ({"jwt_secret": SECRET, "jwt_previous_secrets": ("short",)}, "jwt_previous_secrets: expected at least 32"),
    ],
)
def test_previous_secrets_need_a_current_one_and_the_same_length(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        make_settings(**changes)


@each_case("encoding", ["pem", "jwk"])
def test_public_key_as_secret_is_rejected(encoding: str) -> None:
    with pytest.raises(ConfigurationError, match=r"jwt_secret looks like a key .* set jwt_key_file"):
        load_signing_keys(make_settings(jwt_secret=rs256().public[encoding].decode()))


def test_ssh_key_as_secret_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"jwt_secret looks like a key .* set jwt_key_file"):
        load_signing_keys(make_settings(jwt_secret="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0kXw7n3l1mYQ2e"))


@pytest.mark.parametrize("make_issuer", [rs256, es256, eddsa])
@pytest.mark.parametrize("encoding", ["pem", "jwk"])
async def test_key_file_is_for_the_algorithm_of_its_key_only(make_issuer: Any, encoding: str, tmp_path: Path) -> None:
    issuer = make_issuer()
    keys = load_from_file(tmp_path, issuer.public[encoding])

    algorithms = {algorithm for algorithm in ("HS256", "RS256", "ES256", "EdDSA") if await keys.find(algorithm, None)}
    assert algorithms == {issuer.algorithm}


async def test_pem_key_has_no_kid_and_matches_every_kid(tmp_path: Path) -> None:
    keys = load_from_file(tmp_path, rs256().public["pem"])

    assert await keys.find("RS256", "2026-01")


async def test_set_is_searched_by_kid_and_algorithm(tmp_path: Path) -> None:
    keys = load_from_file(tmp_path, jwks(es256("a"), es256("b"), eddsa("b")))
    a, b = await keys.find("ES256", "a"), await keys.find("ES256", "b")

    assert a
    assert b
    assert a != b
    assert await keys.find("EdDSA", "a") is None
    assert await keys.find("ES256", "c") is None
    assert await keys.find("ES256", None) is None  # ambiguous
    assert await keys.find("EdDSA", None) == await keys.find("EdDSA", "b")


async def test_configured_algorithms_restrict_the_file(tmp_path: Path) -> None:
    keys = load_from_file(tmp_path, jwks(es256(), eddsa()), jwt_algorithms=("EdDSA",))

    assert await keys.find("EdDSA", "ed")
    assert await keys.find("ES256", "es") is None


def test_default_algorithms_never_mix_secrets_and_public_keys() -> None:
    with_url = make_settings(jwt_jwks_url="https://id.example.com/keys", jwt_issuer=ISSUER)

    assert accepted_algorithms(make_settings(jwt_secret=SECRET)) == ("HS256",)
    assert accepted_algorithms(with_url) == ("RS256", "ES256", "EdDSA")


def _pem(key: Any) -> bytes:
    pem: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def _private_pem() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def unusable_files() -> dict[str, bytes]:
    return {
        "empty": b"",
        "text": b"not a key",
        "a list": b"[]",
        "an empty set": b'{"keys": []}',
        "a set that is not a list": b'{"keys": {}}',
        "a set of other things": b'{"keys": [1, "x", null, []]}',
        "RSA of 1024 bits": _pem(rsa.generate_private_key(65537, 1024)),
        "P-384": _pem(ec.generate_private_key(ec.SECP384R1())),
        "secp256k1": _pem(ec.generate_private_key(ec.SECP256K1())),
        "Ed448": _pem(ed448.Ed448PrivateKey.generate()),
        "DSA": _pem(dsa.generate_private_key(1024)),
        "a private key": _private_pem(),
        "a broken PEM": b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
    }


def unusable_entries() -> dict[str, dict[str, Any]]:
    return {
        "symmetric": {"kty": "oct", "k": b64(b"x" * 32), "alg": "HS256"},
        "private": {**es256().jwk, "d": b64(b"x" * 32)},
        "for encryption": {**es256().jwk, "use": "enc"},
        "for other operations": {**es256().jwk, "key_ops": ["sign"]},
        "with operations that are not a list": {**es256().jwk, "key_ops": "verify"},
        "for another algorithm": {**es256().jwk, "alg": "ES512"},
        "another curve": {**es256().jwk, "crv": "P-384"},
        "not on the curve": {**es256().jwk, "y": es256().jwk["x"]},
        "X25519": {**eddsa().jwk, "crv": "X25519"},
        "Ed25519 of the wrong length": {**eddsa().jwk, "x": b64(b"short")},
        "a numeric coordinate": {**es256().jwk, "x": 1},
        "a coordinate not base64": {**es256().jwk, "x": "!!"},
        "a missing coordinate": {name: value for name, value in es256().jwk.items() if name != "y"},
        "a numeric kid": {**es256().jwk, "kid": 7},
        "a kty that is a list": {**es256().jwk, "kty": ["EC"]},
        "RSA of 1024 bits": dict(rs256("small", 1024).jwk),
        "RSA with an even exponent": {**rs256().jwk, "e": b64(b"\x02")},
        "RSA without a modulus": {**rs256().jwk, "n": ""},
    }


@each_case(("name", "content"), lambda: unusable_files().items())
def test_file_without_a_usable_key_raises_configuration_error(name: str, content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="contains no usable public key"):
        load_from_file(tmp_path, content)


@each_case(("name", "entry"), lambda: unusable_entries().items())
async def test_unusable_entry_of_a_set_is_skipped(name: str, entry: dict[str, Any], tmp_path: Path) -> None:
    good = eddsa("good")
    keys = load_from_file(tmp_path, json.dumps({"keys": [entry, dict(good.jwk)]}).encode())

    assert await keys.find("EdDSA", None) == await keys.find("EdDSA", "good")
    assert await keys.find("ES256", None) is None
    assert await keys.find("RS256", None) is None
    assert await keys.find("HS256", None) is None


def test_missing_file_raises_configuration_error_with_its_path(tmp_path: Path) -> None:
    path = str(tmp_path / "missing.pem")
    with pytest.raises(ConfigurationError, match=r"missing\.pem' cannot be read: no such file"):
        load_signing_keys(make_settings(jwt_key_file=path, jwt_issuer=ISSUER))
