"""Observations: what was learned in sessions, filtered by values. They are not a source."""

from collections.abc import Sequence

from sources.drafts import ObservationDraft
from sources.records import ListPage, Observation
from sources.storage.collections.collection import StoredItems
from sources.storage.contract import ALL_OBSERVATIONS, ObservationFilter
from sources.storage.tables.connection import SqlConnection
from sources.storage.tables.observation_table import OBSERVATIONS, observation_conditions
from sources.storage.tables.sql import placeholders
from sources.storage.tables.validation import is_storable


class StoredObservations(StoredItems[Observation, ObservationDraft, str]):
    source = "observations"
    table = OBSERVATIONS

    async def list(self, limit: int, offset: int, where: ObservationFilter = ALL_OBSERVATIONS) -> ListPage[Observation]:
        conditions = observation_conditions(where, "id", "created_at")
        if conditions is None:
            return ListPage((), 0)
        condition, parameters = f"TRUE{conditions.sql}", conditions.parameters
        return await self._read(
            lambda connection: self.table.page(connection, limit, offset, condition, parameters, "created_at")
        )

    async def get_many(self, observation_ids: Sequence[str]) -> Sequence[Observation]:
        uuids = [uuid for uuid in dict.fromkeys(observation_ids) if is_storable(uuid)]

        def work(connection: SqlConnection) -> Sequence[Observation]:
            rows = self.table.select(connection, f"uuid IN ({placeholders(uuids)})", uuids)
            by_uuid = {row.uuid: row for row in rows}
            return [by_uuid[uuid] for uuid in uuids if uuid in by_uuid]

        return await self._read(work)
