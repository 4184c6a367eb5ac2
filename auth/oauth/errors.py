"""Errors with the codes that OAuth assigns to them (RFC 6749 section 5.2, RFC 7591, RFC 8628, RFC 8707)."""

from config.errors import FlorilegiumError


class OAuthError(FlorilegiumError, status=400):
    """`error` is the code for programs; the message is sent as `error_description`."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error


class InvalidClient(OAuthError, status=401):
    """The client is unknown, or did not prove that it is the client it claims to be."""

    def __init__(self, description: str) -> None:
        super().__init__("invalid_client", description)


class RequestRejected(FlorilegiumError, status=400):
    """An authorization request whose client or redirect URI cannot be trusted. It is shown to the person and never sent
    to the redirect URI."""


def invalid_grant(description: str) -> OAuthError:
    return OAuthError("invalid_grant", description)


def invalid_metadata(description: str) -> OAuthError:
    return OAuthError("invalid_client_metadata", description)


def invalid_request(description: str) -> OAuthError:
    return OAuthError("invalid_request", description)
