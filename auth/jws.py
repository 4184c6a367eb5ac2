"""The one file that touches PyJWT and cryptography: keys from their formats, signatures checked and made.

It judges signatures only; headers and claims are `auth.tokens`' business. Import it where a token is at hand,
not before: these libraries take 0.2 s to load, and a local stdio server has no use for them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from auth.key_table import SigningKey
from config.errors import ConfigurationError

# RFC 7518 section 3.3 asks for 2048 bits; the upper bound keeps one verification under a few milliseconds.
_RSA_BITS = range(2048, 8193)

_ALGORITHMS = {name: jwt.get_algorithm_by_name(name) for name in ("HS256", "RS256", "ES256", "EdDSA")}

# The algorithm of each key type, and the members of a JWK that make its public key (RFC 7518, 6; RFC 8037, 2).
_KEY_TYPES: Mapping[str, tuple[str, Sequence[str]]] = {
    "RSA": ("RS256", ("n", "e")),
    "EC": ("ES256", ("crv", "x", "y")),
    "OKP": ("EdDSA", ("crv", "x")),
}


def is_signed(key: SigningKey, signing_input: bytes, signature: bytes) -> bool:
    """Whether the signature is the key's, by the key's own algorithm: the token has no say in it."""
    return _ALGORITHMS[key.algorithm].verify(signing_input, key.key, signature)


def sign(payload: bytes, secret: str, token_type: str) -> str:
    return jwt.PyJWS().encode(payload, secret, algorithm="HS256", headers={"typ": token_type})


def key_from_secret(secret: str) -> SigningKey:
    try:
        return SigningKey("HS256", None, _ALGORITHMS["HS256"].prepare_key(secret))
    except jwt.InvalidKeyError as error:  # PyJWT recognises a public key that was pasted as a secret
        raise ConfigurationError(
            "jwt_secret looks like a key in PEM, DER or JWK form; expected a random text: "
            "set jwt_key_file to use a public key"
        ) from error


def keys_from_file(content: bytes) -> Sequence[SigningKey]:
    """The usable keys of a PEM, JWK or JWK set file."""
    if content.lstrip().startswith(b"-----BEGIN"):
        key = _key_from_pem(content)
        return [key] if key else []
    try:
        document = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return []
    entries = document.get("keys", [document]) if isinstance(document, dict) else []
    return keys_from_jwks(entries) if isinstance(entries, list) else []


def keys_from_jwks(entries: Iterable[object]) -> Sequence[SigningKey]:
    """The usable keys of a set; entries for other purposes, of other kinds or malformed are passed over."""
    keys = (_key_from_jwk(entry) for entry in entries if isinstance(entry, dict))
    return [key for key in keys if key]


def _key_from_jwk(jwk: Mapping[str, Any]) -> SigningKey | None:
    algorithm, members = _KEY_TYPES.get(str(jwk.get("kty")), ("", ()))
    if not algorithm or not _is_for_verifying(jwk, algorithm):
        return None
    public = {name: jwk.get(name) for name in ("kty", *members)}
    if not all(isinstance(value, str) for value in public.values()):
        return None
    try:
        key = _ALGORITHMS[algorithm].from_jwk(public)
    except (jwt.PyJWTError, ValueError, UnsupportedAlgorithm):
        return None
    return SigningKey(algorithm, jwk.get("kid"), key) if _algorithm_of(key) == algorithm else None


def _is_for_verifying(jwk: Mapping[str, Any], algorithm: str) -> bool:
    """RFC 7517 section 4. A set that publishes a private key has lost it: such a key is worth nothing."""
    operations = jwk.get("key_ops", ["verify"])
    return (
        jwk.get("use", "sig") == "sig"
        and isinstance(operations, list)
        and "verify" in operations
        and jwk.get("alg", algorithm) == algorithm
        and isinstance(jwk.get("kid", ""), str)
        and "d" not in jwk
    )


def _key_from_pem(content: bytes) -> SigningKey | None:
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        return None
    algorithm = _algorithm_of(key)
    return SigningKey(algorithm, None, key) if algorithm else None


def _algorithm_of(key: object) -> str:
    """The one algorithm a public key may verify; empty for a key we do not accept."""
    match key:
        case RSAPublicKey() if key.key_size in _RSA_BITS:
            return "RS256"
        case EllipticCurvePublicKey() if isinstance(key.curve, SECP256R1):
            return "ES256"
        case Ed25519PublicKey():
            return "EdDSA"
        case _:
            return ""
