"""A client with a metadata document that signs tokens with a key of its own."""

import json
import secrets
import time
from functools import cached_property
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests.live import LiveServer
from tests.server.http_client import HttpResponse
from tests.server.oauth.oauth_client import REDIRECT_URI, OAuthTestClient

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class ClientKey:
    """A key pair, generated on first use."""

    def __init__(self, algorithm: str = "ES256", kid: str = "key-1") -> None:
        self.algorithm = algorithm
        self.kid = kid

    @cached_property
    def private(self) -> Any:
        if self.algorithm == "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        return rsa.generate_private_key(65537, 2048)

    @cached_property
    def jwk(self) -> dict[str, Any]:
        """The public part."""
        algorithm = ECAlgorithm if self.algorithm == "ES256" else RSAAlgorithm
        public = json.loads(algorithm.to_jwk(self.private.public_key()))
        return {**public, "kid": self.kid, "use": "sig", "alg": self.algorithm}

    def sign(self, claims: dict[str, Any], **headers: Any) -> str:
        present = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(present, self.private, self.algorithm, {"kid": self.kid, **headers})


class SigningClient(OAuthTestClient):
    """Sends an assertion with every request for tokens, unless the request has one of its own."""

    def __init__(self, server: LiveServer, client_id: str, key: ClientKey, redirect_uri: str = REDIRECT_URI) -> None:
        super().__init__(server, client_id, redirect_uri)
        self.key = key

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = time.time()
        return {
            "iss": self.client_id,
            "sub": self.client_id,
            "aud": self.server.url,
            "iat": now,
            "exp": now + 60,
            "jti": secrets.token_urlsafe(16),
            **changes,
        }

    async def token_request(self, **values: str | None) -> HttpResponse:
        proof = {"client_assertion_type": ASSERTION_TYPE, "client_assertion": self.key.sign(self.claims())}
        return await super().token_request(**{**proof, **values})
