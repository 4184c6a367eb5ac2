"""The language models that users chose for their own questions: address, name and key of an OpenAI-compatible API.

Stored in the control database, and not in libraries, so that no export, search or agent can reach a key.
"""

from msgspec import Struct

from auth.control_database import ControlConnection, ControlDatabase, control_operation
from config.paths import UserId


class ModelEndpoint(Struct, frozen=True, kw_only=True):
    """`url` is the base address, such as `https://api.openai.com/v1`. `is_trusted`: it was chosen by the operator, so
    that it may be in the network behind this server."""

    url: str
    model: str = ""
    key: str = ""
    is_trusted: bool = False

    def __repr__(self) -> str:
        """Leaves the key out: representations end up in logs."""
        return f"ModelEndpoint(url={self.url!r}, model={self.model!r})"


class ModelEndpoints:
    def __init__(self, database: ControlDatabase) -> None:
        self._database = database

    @control_operation("read")
    def get(self, db: ControlConnection, user_id: UserId) -> ModelEndpoint | None:
        row = db.execute("SELECT url, model, key FROM model_endpoints WHERE user_id = ?", (user_id,)).fetchone()
        return None if row is None else ModelEndpoint(url=row[0], model=row[1], key=row[2])

    @control_operation("write")
    def set(self, db: ControlConnection, user_id: UserId, endpoint: ModelEndpoint) -> None:
        db.execute("DELETE FROM model_endpoints WHERE user_id = ?", (user_id,))
        db.execute(
            "INSERT INTO model_endpoints (user_id, url, model, key) VALUES (?, ?, ?, ?)",
            (user_id, endpoint.url, endpoint.model, endpoint.key),
        )

    @control_operation("write")
    def remove(self, db: ControlConnection, user_id: UserId) -> None:
        db.execute("DELETE FROM model_endpoints WHERE user_id = ?", (user_id,))
