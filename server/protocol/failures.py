"""Logging of unexpected exceptions by type, location and causes, without their messages.

An exception's message often quotes the data that caused it, such as a user's note, and the log must not hold content.
"""

from loguru import logger


def log_failure(what: str, error: BaseException) -> None:
    logger.opt(exception=_without_message(error)).error("{} failed", what)


def _without_message(error: BaseException) -> BaseException:
    """Returns an exception of the same name and traceback with no arguments, and its causes likewise."""
    original = type(error)
    attributes = {"__module__": original.__module__, "__qualname__": original.__qualname__}
    replacement: BaseException = type(original.__name__, (Exception,), attributes)()
    if error.__cause__ is not None:
        replacement.__cause__ = _without_message(error.__cause__)
    elif error.__context__ is not None and not error.__suppress_context__:
        replacement.__context__ = _without_message(error.__context__)
    return replacement.with_traceback(error.__traceback__)
