"""Parses public keys and verifies their signatures. The only module that imports PyJWT and cryptography.

It handles signatures only; `auth.tokens` checks headers and claims, and `auth.signing_keys` handles shared secrets.
Import it inside functions that have a public key: these libraries take 0.2 s to load and 9 MB of memory.
"""

from collections.abc import Iterable, Mapping, Sequence

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from auth.signing_keys import SigningKey

# RFC 7518 section 3.3 requires 2048 bits; the upper bound keeps one verification within a few milliseconds.
_RSA_BITS = range(2048, 8193)

# A key is used with one of them only (RFC 8725 section 3.1): a public key must never become a shared secret.
_ALGORITHMS = {name: jwt.get_algorithm_by_name(name) for name in ("RS256", "ES256", "EdDSA")}

# For each key type, its algorithm and the JWK members of its public key (RFC 7518 section 6, RFC 8037 section 2).
_KEY_TYPES: Mapping[str, tuple[str, Sequence[str]]] = {
    "RSA": ("RS256", ("n", "e")),
    "EC": ("ES256", ("crv", "x", "y")),
    "OKP": ("EdDSA", ("crv", "x")),
}


def verify(key: SigningKey, signing_input: bytes, signature: bytes) -> bool:
    return _ALGORITHMS[key.algorithm].verify(signing_input, key.key, signature)


def looks_like_key(secret: str) -> bool:
    """Tells whether PyJWT recognises a PEM, SSH, DER or JWK key in what was configured as a shared secret."""
    try:
        jwt.get_algorithm_by_name("HS256").prepare_key(secret)
    except jwt.InvalidKeyError:
        return True
    return False


def keys_from_file(content: bytes) -> Sequence[SigningKey]:
    """Returns the usable keys of a PEM, JWK or JWK set file."""
    if content.lstrip().startswith(b"-----BEGIN"):
        try:
            pem_key = load_pem_public_key(content)
        except (ValueError, UnsupportedAlgorithm):
            return []
        algorithm = _algorithm_of(pem_key)
        return [SigningKey(algorithm, None, pem_key)] if algorithm else []
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    entries = document.get("keys", [document]) if isinstance(document, dict) else []
    return keys_from_jwks(entries) if isinstance(entries, list) else []


def keys_from_jwks(entries: Iterable[object]) -> Sequence[SigningKey]:
    """Returns the usable keys of a JWK set, skipping malformed entries and entries of another type or purpose."""
    keys = []
    for jwk in entries:
        if not isinstance(jwk, dict):
            continue
        algorithm, members = _KEY_TYPES.get(str(jwk.get("kty")), ("", ()))
        operations = jwk.get("key_ops", ["verify"])
        # The members of RFC 7517 section 4. A published private key (`d`) is compromised and rejected.
        is_for_verifying = (
            jwk.get("use", "sig") == "sig"
            and isinstance(operations, list)
            and "verify" in operations
            and jwk.get("alg", algorithm) == algorithm
            and isinstance(jwk.get("kid", ""), str)
            and "d" not in jwk
        )
        public = {name: jwk.get(name) for name in ("kty", *members)}
        if not algorithm or not is_for_verifying or not all(isinstance(value, str) for value in public.values()):
            continue
        try:
            key = _ALGORITHMS[algorithm].from_jwk(public)
        except (jwt.PyJWTError, ValueError, UnsupportedAlgorithm):
            continue
        if _algorithm_of(key) == algorithm:
            keys.append(SigningKey(algorithm, jwk.get("kid"), key))
    return keys


def _algorithm_of(key: object) -> str:
    """Returns the algorithm that a public key is accepted for, or an empty string if it is not accepted."""
    match key:
        case RSAPublicKey() if key.key_size in _RSA_BITS:
            return "RS256"
        case EllipticCurvePublicKey() if isinstance(key.curve, SECP256R1):
            return "ES256"
        case Ed25519PublicKey():
            return "EdDSA"
        case _:
            return ""
