"""Finds observations by id. An observation imported from conversation-memory also has the id it had there."""

from collections.abc import Sequence

from server.compat.conversation_memory import errors
from server.compat.conversation_memory.errors import memory_error
from sources.importers.engine.ids import imported_observation_id
from sources.records import Observation
from sources.storage.contract import Observations


async def find_observations(observations: Observations, ids: Sequence[str]) -> Sequence[Observation]:
    """Returns the observations in the order of the ids, each once. Raises the same error for an unknown id and for one
    of another user."""
    original_ids = {name: imported_observation_id(name) for name in ids if name.isprintable()}
    by_id = {row.id: row for row in await observations.get_many([*ids, *original_ids.values()])}
    found = {name: by_id.get(name) or by_id.get(original_ids.get(name, "")) for name in ids}
    if missing := [name for name, observation in found.items() if observation is None]:
        raise memory_error(errors.BAD_ID, ", ".join(missing))
    return list({observation.id: observation for observation in found.values() if observation is not None}.values())
