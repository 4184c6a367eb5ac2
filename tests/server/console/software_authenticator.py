"""An authenticator in software: it creates keys and signs challenges like a device (WebAuthn Level 3, section 6)."""

import base64
import hashlib
import json
import secrets
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

_PRESENT, _VERIFIED, _HAS_CREDENTIAL = 0x01, 0x04, 0x40


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class SoftwareAuthenticator:
    """One passkey on one device. A test can change what it signs."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.rp_id: str | None = None
        self.credential_id = secrets.token_bytes(32)
        self.private_key = ec.generate_private_key(ec.SECP256R1())
        self.sign_count = 0
        self.flags = _PRESENT | _VERIFIED
        self.user_handle = b""

    def create(self, options: dict[str, Any]) -> str:
        """Responds to `navigator.credentials.create`."""
        self.user_handle = unb64(options["user"]["id"])
        credential = len(self.credential_id).to_bytes(2, "big") + self.credential_id + cbor2.dumps(self._cose_key())
        data = self._authenticator_data(options["rp"]["id"], _HAS_CREDENTIAL) + bytes(16) + credential
        attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        client_data = self._client_data("webauthn.create", options["challenge"])
        return self._credential(attestationObject=b64(attestation), clientDataJSON=b64(client_data))

    def get(self, options: dict[str, Any]) -> str:
        """Responds to `navigator.credentials.get`."""
        self.sign_count += 1
        client_data = self._client_data("webauthn.get", options["challenge"])
        data = self._authenticator_data(options["rpId"], 0)
        signature = self.private_key.sign(data + hashlib.sha256(client_data).digest(), ec.ECDSA(SHA256()))
        return self._credential(
            authenticatorData=b64(data),
            clientDataJSON=b64(client_data),
            signature=b64(signature),
            userHandle=b64(self.user_handle),
        )

    def _credential(self, **response: str) -> str:
        identity = b64(self.credential_id)
        return json.dumps({"id": identity, "rawId": identity, "type": "public-key", "response": response})

    def _authenticator_data(self, rp_id: str, flags: int) -> bytes:
        digest = hashlib.sha256((self.rp_id or rp_id).encode()).digest()
        return digest + bytes([self.flags | flags]) + self.sign_count.to_bytes(4, "big")

    def _client_data(self, kind: str, challenge: str) -> bytes:
        return json.dumps({"type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": False}).encode()

    def _cose_key(self) -> dict[int, Any]:
        numbers = self.private_key.public_key().public_numbers()
        return {1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
