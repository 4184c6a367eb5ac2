"""Texts of forms: what went wrong."""

from config.errors import FlorilegiumError, RateLimited, retry_after_seconds


def form_error(error: FlorilegiumError) -> str:
    """Returns an error as it is shown above a form, where the name of the field is clear."""
    if isinstance(error, RateLimited):
        return f"Too many failed attempts. Try again in {retry_after_seconds(error.retry_after_s)} s."
    text = error.message.removeprefix("password: ").removeprefix("name: ")
    return text[:1].upper() + text[1:] + "."
