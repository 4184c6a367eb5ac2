"""The rows of layer 1, and the answer that holds them."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from server.compat.conversation_memory.questions import Mode

Kind = Literal["observations", "exchanges", "conversations"]


class ObservationRow(Struct, frozen=True, kw_only=True):
    """Just enough to choose by: `get_observations` has the rest."""

    id: str
    type: str
    title: str
    project: str
    date: str
    score: float


class ExchangeRow(Struct, frozen=True, kw_only=True):
    """An exchange up to what matched in it, or the one that matched best in a conversation: `read` takes its path and
    lines."""

    path: str
    project: str
    date: str
    score: float
    summary: str
    snippet: str
    line_start: int
    line_end: int


class Recalled(Struct, frozen=True, kw_only=True):
    """`total` is exact or null. `note` is there where the rows are not what they seem."""

    kind: Kind
    results: tuple[ObservationRow | ExchangeRow, ...]
    total: int | None
    count: int
    mode: Mode
    served_by: Literal["text"] = "text"
    concepts: tuple[str, ...] | UnsetType = UNSET
    note: str | UnsetType = UNSET
