"""Embeds the texts of judged libraries as fast as the machine allows.

What is measured with these vectors is the quality of searches, so it does not matter how fast they were made: all cores
are used, and a vector that an earlier run made of the same text with the same model is not made again.
"""

import asyncio
import hashlib
import os
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.local_runtime import model_settings
from config.paths import DataRoot, UserId
from config.settings import Settings
from sources.semantic.model import ModelInfo
from sources.semantic.named_models import NAMED_MODELS
from sources.semantic.service import SemanticService
from sources.semantic.worker_process import WorkerProcess
from sources.storage.sqlite.connection.pool import SqliteLibraries
from tests.build_settings import build_settings

CACHE = Path(tempfile.gettempdir(), "florilegium-bench-vectors")


class CachedVectors(SemanticService):
    """The vectors of each model are in a file of their own, by the SHA-256 of their text."""

    def __init__(self, settings: Settings, cache: Path) -> None:
        super().__init__(settings)
        cache.mkdir(parents=True, exist_ok=True)
        self._workers: dict[str, list[WorkerProcess]] = {}
        self._files: dict[str, sqlite3.Connection] = {}
        for model in self.choices:
            named = NAMED_MODELS[model.name]
            self._workers[model.id] = [WorkerProcess(named, settings) for _ in range(os.cpu_count() or 1)]
            self._files[model.id] = file = sqlite3.connect(cache / f"{model.id}.db", isolation_level=None)
            file.execute("CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        self.cached = 0
        self.made = 0

    async def embed_passages(self, texts: Sequence[str], model: ModelInfo | None = None) -> list[bytes]:
        model = model or self.model
        assert model is not None
        file = self._files[model.id]
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
        read = "SELECT vector FROM vectors WHERE text = ?"
        known = {key: row[0] for key in keys if (row := file.execute(read, (key,)).fetchone()) is not None}
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        vectors = dict(zip(new, await self._embed(self._workers[model.id], list(new.values())), strict=True))
        file.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", vectors.items())
        self.cached += len(texts) - len(new)
        self.made += len(new)
        return [(known | vectors)[key] for key in keys]

    async def close(self) -> None:
        await asyncio.gather(*(worker.close() for workers in self._workers.values() for worker in workers))
        for file in self._files.values():
            file.close()
        await super().close()

    async def _embed(self, workers: Sequence[WorkerProcess], texts: Sequence[str]) -> list[bytes]:
        count = len(workers)
        shares = [texts[number::count] for number in range(count)]
        parts = await asyncio.gather(
            *(worker.embed_passages(share) for worker, share in zip(workers, shares, strict=True) if share)
        )
        return [parts[index % count][index // count] for index in range(len(texts))]


async def embed_libraries(root: Path, model: str, users: Sequence[UserId], cache: Path = CACHE) -> str:
    """Embeds the libraries of these users. Returns how many vectors were made."""
    settings = build_settings(data_dir=str(root), semantic_model=model, library_deadline_ms=60_000, **model_settings())
    vectors = CachedVectors(settings, cache)
    libraries = SqliteLibraries(DataRoot(root), settings, semantic=vectors, embeds_in_background=False)
    for user_id in users:
        await libraries.embed(user_id)
    await libraries.close()
    await vectors.close()
    return f"{model}: {vectors.made} passages embedded, {vectors.cached} from {cache}"
