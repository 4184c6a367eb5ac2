"""Failures nobody foresaw, as they may be logged: kind, place and causes, but not their words.

The text of an exception quotes what it choked on, which here is somebody's note; the log never holds content.
"""

from loguru import logger


def log_failure(what: str, error: BaseException) -> None:
    logger.opt(exception=_without_words(error)).error("{} failed", what)


def _without_words(error: BaseException) -> BaseException:
    kind = type(error)
    named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    wordless: BaseException = type(kind.__name__, (Exception,), named)()
    if error.__cause__ is not None:
        wordless.__cause__ = _without_words(error.__cause__)
    elif error.__context__ is not None and not error.__suppress_context__:
        wordless.__context__ = _without_words(error.__context__)
    return wordless.with_traceback(error.__traceback__)
