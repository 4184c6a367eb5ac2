"""Token issuers for tests, which sign arbitrary headers and payloads with raw keys and without a JWT library."""

import base64
import hmac
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec import Struct

from tests.auth.auth_fixture import ISSUER, NOW, PUBLIC_URL, SECRET

Signer = Callable[[bytes], bytes]


class _Absent:
    """The value of a header or claim that is omitted."""


ABSENT = _Absent()


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def int_b64(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def compact(header: bytes, payload: bytes, sign: Signer) -> str:
    signing_input = f"{b64(header)}.{b64(payload)}"
    return f"{signing_input}.{b64(sign(signing_input.encode()))}"


def as_json(value: Mapping[str, Any]) -> bytes:
    return json.dumps({k: v for k, v in value.items() if v is not ABSENT}, separators=(",", ":")).encode()


class Issuer(Struct, frozen=True):
    """A signing key and its tokens. `public` contains the public key in several formats."""

    name: str
    algorithm: str
    sign: Signer
    public: Mapping[str, bytes]
    jwk: Mapping[str, Any]
    iss: str = ISSUER

    def header(self, **changes: Any) -> bytes:
        return as_json({"alg": self.algorithm, "typ": "at+jwt", "kid": self.name, **changes})

    def payload(self, **changes: Any) -> bytes:
        return as_json(
            {
                "iss": self.iss,
                "aud": f"{PUBLIC_URL}/mcp",
                "sub": "alice",
                "client_id": "reader",
                "scope": "knowledge:read knowledge:write",
                "iat": NOW - 60,
                "exp": NOW + 600,
                **changes,
            }
        )

    def token(self, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
        return compact(self.header(**(header or {})), self.payload(**claims), self.sign)


def hmac_signer(secret: bytes, digest: str = "sha256") -> Signer:
    return lambda message: hmac.new(secret, message, digest).digest()


def hs256(secret: bytes = SECRET.encode()) -> Issuer:
    # A server with a secret is its own issuer unless another is configured.
    return Issuer("hs", "HS256", hmac_signer(secret), {}, {}, iss=PUBLIC_URL)


@cache
def rs256(name: str = "rs", bits: int = 2048) -> Issuer:
    private = rsa.generate_private_key(65537, bits)
    numbers = private.public_key().public_numbers()
    jwk = {"kty": "RSA", "kid": name, "use": "sig", "n": int_b64(numbers.n), "e": int_b64(numbers.e)}
    return Issuer(
        name,
        "RS256",
        lambda message: private.sign(message, padding.PKCS1v15(), SHA256()),
        {**_public_formats(private.public_key(), jwk), "modulus": numbers.n.to_bytes(bits // 8, "big")},
        jwk,
    )


@cache
def es256(name: str = "es") -> Issuer:
    private = ec.generate_private_key(ec.SECP256R1())
    numbers = private.public_key().public_numbers()
    x, y = (b64(value.to_bytes(32, "big")) for value in (numbers.x, numbers.y))
    jwk = {"kty": "EC", "crv": "P-256", "kid": name, "use": "sig", "x": x, "y": y}

    def sign(message: bytes) -> bytes:
        r, s = decode_dss_signature(private.sign(message, ec.ECDSA(SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    return Issuer(name, "ES256", sign, _public_formats(private.public_key(), jwk), jwk)


@cache
def eddsa(name: str = "ed") -> Issuer:
    private = ed25519.Ed25519PrivateKey.generate()
    raw = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    jwk = {"kty": "OKP", "crv": "Ed25519", "kid": name, "use": "sig", "alg": "EdDSA", "x": b64(raw)}
    return Issuer(name, "EdDSA", private.sign, {**_public_formats(private.public_key(), jwk), "raw": raw}, jwk)


def _public_formats(
    key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey, jwk: Mapping[str, Any]
) -> dict[str, bytes]:
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return {
        "pem": pem,
        "pem without its last newline": pem.rstrip(),
        "der": der,
        "jwk": as_json(jwk),
        "base64 of der": base64.b64encode(der),
    }


def jwks(*issuers: Issuer) -> bytes:
    return json.dumps({"keys": [dict(issuer.jwk) for issuer in issuers]}).encode()
