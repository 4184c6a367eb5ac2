"""Errors with the codes that OAuth assigns to them (RFC 6749 section 5.2, RFC 7591, RFC 8628, RFC 8707)."""

from config.errors import FlorilegiumError


class OAuthError(FlorilegiumError):
    """`error` is the code for programs; the message is sent as `error_description`."""

    status = 400
    code = 400

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error


class InvalidClient(OAuthError):
    """The client is unknown, or did not prove that it is the client it claims to be."""

    status = 401
    code = 401

    def __init__(self, description: str) -> None:
        super().__init__("invalid_client", description)


class RequestRejected(FlorilegiumError):
    """An authorization request whose client or redirect URI cannot be trusted. It is shown to the person and never sent
    to the redirect URI."""

    status = 400
    code = 400


def invalid_grant(description: str) -> OAuthError:
    return OAuthError("invalid_grant", description)


def invalid_metadata(description: str) -> OAuthError:
    return OAuthError("invalid_client_metadata", description)


def invalid_request(description: str) -> OAuthError:
    return OAuthError("invalid_request", description)
