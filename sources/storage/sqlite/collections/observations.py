"""Observations in the user's files."""

from sources.drafts import ObservationDraft
from sources.records import Observation
from sources.storage.collections.observations import StoredObservations
from sources.storage.collections.searchable_observations import SearchableObservations
from sources.storage.sqlite.collections.searchable import SqliteCollection
from sources.storage.sqlite.search.targets.observations import OBSERVATIONS_TARGET


class SqliteObservations(
    SearchableObservations, SqliteCollection[Observation, ObservationDraft, str], StoredObservations
):
    target = OBSERVATIONS_TARGET
