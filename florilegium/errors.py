"""The errors that an extension may raise. Each has the HTTP status and the JSON-RPC code with which it is answered, and
its message is shown to the client: it contains no path, no SQL and no secret. Any other exception is logged and
answered as an unexpected failure.

Raise `NotFound` for unknown and for foreign ids alike, `InvalidParams` for an argument that cannot be used, with a
message such as `limit: expected 1..100, got 500`, `Conflict` if the stored version is not the expected one, `TooLarge`
above a limit, and `Unavailable` if something that the extension needs cannot be reached at the moment.
"""

from config.errors import Conflict, FlorilegiumError, InvalidParams, NotFound, StorageError, TooLarge, Unavailable

__all__ = [
    "Conflict",
    "FlorilegiumError",
    "InvalidParams",
    "NotFound",
    "StorageError",
    "TooLarge",
    "Unavailable",
]
