"""Embeds queries with a local model in this process, on one thread. The model is loaded on that thread on first use."""

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sources.semantic.model import EmbeddingModel, SemanticUnavailable
from sources.semantic.named_models import NamedModel, load_model

UNKNOWN_WORDS = "the model does not know the words of the query"
# A model that cannot be loaded is not tried with every query.
_RETRY_S = 30.0


class LocalQueries:
    def __init__(self, model: NamedModel, data_dir: Path) -> None:
        self._named = model
        self._data_dir = data_dir
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="semantic")
        self._model: EmbeddingModel | None = None
        self._failure: SemanticUnavailable | None = None
        self._failed_at = 0.0

    @property
    def is_loaded(self) -> bool:
        return self._model is not None

    async def load(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, self._loaded)

    async def embed_query(self, text: str, timeout_s: float) -> bytes:
        """Embeds a query. One whose turn comes after its time is up is dropped: its caller has timed out."""
        due = time.monotonic() + timeout_s
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._embed, text, due)

    async def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _embed(self, text: str, due: float) -> bytes:
        if time.monotonic() > due:
            raise SemanticUnavailable("too many queries are waiting for the model")
        vector = self._loaded().embed_query(text)
        if not any(vector):
            raise SemanticUnavailable(UNKNOWN_WORDS)
        return vector

    def _loaded(self) -> EmbeddingModel:
        if self._model is not None:
            return self._model
        if self._failure is not None and time.monotonic() - self._failed_at < _RETRY_S:
            raise SemanticUnavailable(self._failure.reason)
        # Read when numpy and tokenizers are loaded. Queries are short, so that more threads only cost memory.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            self._model = load_model(self._named, self._data_dir)
        except SemanticUnavailable as error:
            self._failure, self._failed_at = error, time.monotonic()
            raise
        return self._model
