"""A library with vectors, for measuring searches by meaning.

The vectors are random: what a search costs does not depend on what they say, and embedding the reference library takes
many minutes of CPU time. Queries are embedded by the real model.
"""

import random
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bench.library import OWNER, SEED
from bench.local_runtime import open_local_runtime, user_id_for
from config.paths import DataRoot
from config.settings import Settings
from sources.semantic.model import SCALE, ModelInfo, SemanticUnavailable
from sources.semantic.named_models import NAMED_MODELS, find_files
from sources.semantic.service import SemanticService
from sources.storage.sqlite.connection.pool import SqliteLibraries
from tests.build_settings import build_settings

_TIMEOUT_MS = 60_000


def installed_models() -> list[str]:
    """Returns the names of the models that can be measured here."""
    return [
        name
        for name, model in sorted(NAMED_MODELS.items())
        if not model.missing_packages and find_files(model, Path()) is not None
    ]


class RandomVectors(SemanticService):
    """Makes vectors of the right size without reading the texts."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._random = random.Random(SEED)

    async def embed_passages(self, texts: Sequence[str], model: ModelInfo | None = None) -> list[bytes]:
        model = model or self.model
        assert model is not None
        # Components of a vector of length 1 lie around 0, at a distance of about the root of the dimension.
        spread = SCALE / model.dimension**0.5
        components = [round(self._random.gauss(0, spread)) & 0xFF for _ in range(4 * model.dimension)]
        starts = [self._random.randrange(3 * model.dimension) for _ in texts]
        return [bytes(components[start : start + model.dimension]) for start in starts]


async def copy_with_vectors(library: Path, target: Path, model: str) -> None:
    """Copies the data directory of a library and gives all of its passages vectors."""
    shutil.copytree(library, target)
    settings = build_settings(data_dir=str(target), semantic_model=model, library_deadline_ms=_TIMEOUT_MS)
    vectors = RandomVectors(settings)
    libraries = SqliteLibraries(DataRoot(target), settings, semantic=vectors, embeds_in_background=False)
    await libraries.embed(user_id_for(OWNER))
    await libraries.close()
    await vectors.close()
    await _require_coverage(target, model)


async def _require_coverage(root: Path, model: str) -> None:
    """A search that does not use the vectors would make the measurement meaningless."""
    async with open_local_runtime(root, semantic_model=model, semantic_timeout_ms=_TIMEOUT_MS) as runtime:
        response = await runtime.call(runtime.context_for(OWNER), "knowledge_search", query="vectors")
    if response["semantic"]["status"] != "on":
        raise RuntimeError(f"expected a library with vectors of {model}, got {response['semantic']}")


async def query_cpu_ms(model: str, queries: Sequence[str]) -> float:
    """Returns the mean CPU time of embedding a query."""
    service = SemanticService(Settings(semantic_model=model, semantic_timeout_ms=_TIMEOUT_MS))
    await service.embed_query("load the model")
    started_ns = time.process_time_ns()
    for query in queries:
        # A model does not compare the few queries whose words it does not know; embedding them costs the same.
        with suppress(SemanticUnavailable):
            await service.embed_query(query)
    cpu_ms = (time.process_time_ns() - started_ns) / 1_000_000
    await service.close()
    return cpu_ms / len(queries)
