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
        assert self.model is not None
        model = NAMED_MODELS[self.model.name]
        self._workers = [WorkerProcess(model, settings) for _ in range(os.cpu_count() or 1)]
        cache.mkdir(parents=True, exist_ok=True)
        self._file = sqlite3.connect(cache / f"{self.model.id}.db", isolation_level=None)
        self._file.execute("CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        self.cached = 0
        self.made = 0

    async def embed_passages(self, texts: Sequence[str]) -> list[bytes]:
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
        known = {key: vector for key in keys if (vector := self._read(key)) is not None}
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        vectors = dict(zip(new, await self._embed(list(new.values())), strict=True))
        self._file.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", vectors.items())
        self.cached += len(texts) - len(new)
        self.made += len(new)
        return [(known | vectors)[key] for key in keys]

    async def close(self) -> None:
        await asyncio.gather(*(worker.close() for worker in self._workers))
        self._file.close()
        await super().close()

    def _read(self, key: bytes) -> bytes | None:
        row = self._file.execute("SELECT vector FROM vectors WHERE text = ?", (key,)).fetchone()
        return row[0] if row else None

    async def _embed(self, texts: Sequence[str]) -> list[bytes]:
        count = len(self._workers)
        shares = [texts[number::count] for number in range(count)]
        parts = await asyncio.gather(
            *(worker.embed_passages(share) for worker, share in zip(self._workers, shares, strict=True) if share)
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
