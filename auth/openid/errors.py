"""Why a sign-in at a provider failed."""

from loguru import logger

from config.errors import FlorilegiumError


class OpenIdFailed(FlorilegiumError):
    """The sign-in failed. The person sees the message; `detail` is logged for the operator. `subject` is the
    person, once the provider has said who it is, and `user_id` the user."""

    status = 403
    code = 403

    def __init__(self, message: str, detail: str = "", *, subject: str = "", user_id: str = "") -> None:
        super().__init__(message)
        self.subject = subject
        self.user_id = user_id
        if detail:
            logger.warning("OpenID sign-in failed: {}", detail)


class ProviderUnavailable(OpenIdFailed):
    """The provider did not answer as it should."""

    status = 503
    code = 503

    def __init__(self, provider: str, detail: str) -> None:
        super().__init__(
            f"{provider} cannot be used to sign in at the moment; try again later", f"{provider}: {detail}"
        )
