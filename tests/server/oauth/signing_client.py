"""A client with a metadata document that signs tokens with a key of its own."""

import json
import secrets
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests.live import LiveServer
from tests.server.http_client import HttpResponse
from tests.server.oauth.oauth_client import REDIRECT_URI, OAuthTestClient

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class ClientKey:
    """A key pair. `jwk` is the public part."""

    def __init__(self, algorithm: str = "ES256", kid: str = "key-1") -> None:
        self.algorithm = algorithm
        self.kid = kid
        self.private: Any
        if algorithm == "ES256":
            self.private = ec.generate_private_key(ec.SECP256R1())
            public = ECAlgorithm.to_jwk(self.private.public_key())
        else:
            self.private = rsa.generate_private_key(65537, 2048)
            public = RSAAlgorithm.to_jwk(self.private.public_key())
        self.jwk = {**json.loads(public), "kid": kid, "use": "sig", "alg": algorithm}

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
