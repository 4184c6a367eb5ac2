"""The service that searches and background jobs use to embed texts.

Texts leave this machine only if `semantic_model` is a URL.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

from cachetools import LRUCache, TTLCache
from loguru import logger
from msgspec.structs import replace

from config.settings import SEMANTIC_MODELS, Settings
from sources.semantic.endpoint import EmbeddingEndpoint, endpoint_info
from sources.semantic.model import EmbeddingModel, ModelInfo, SemanticUnavailable
from sources.semantic.named_models import NAMED_MODELS, NamedModel, best_model, find_files, load_model
from sources.semantic.worker_process import WorkerProcess

# Queries whose vectors are kept, for the next pages and for several sources.
_SEMANTIC_QUERY_CACHE_MAX = 1000

# -- local queries -----------------------------------------------------------------------------------------------------
# Embeds queries with a local model in this process, on one thread. The model is loaded on that thread on first use.

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


# The first calls come before it: importing onnxruntime would delay them.
_WARM_UP_AFTER_S = 2.0


class _QueryModel(Protocol):
    async def embed_query(self, text: str, timeout_s: float) -> bytes: ...

    async def close(self) -> None: ...


class _PassageModel(Protocol):
    async def embed_passages(self, texts: Sequence[str]) -> list[bytes]: ...

    async def close(self) -> None: ...


class SemanticService:
    """`model` is known without loading it, and None if semantic search is off."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._data_dir = Path(settings.data_dir)
        self._timeout_s = settings.semantic_timeout_ms / 1000
        self.model = configured_model(settings)
        self._query_models: dict[str, _QueryModel] = {}
        self._passage_model: _PassageModel | None = None
        self._endpoint = EmbeddingEndpoint(settings)
        self._cache: LRUCache[tuple[str, str], bytes] = LRUCache(_SEMANTIC_QUERY_CACHE_MAX)
        # A search asks again for each round of hits. It must neither wait again nor rank the rounds in different ways,
        # so a failure is kept for as long as a search may take.
        self._failures: TTLCache[tuple[str, str], str] = TTLCache[tuple[str, str], str](
            _SEMANTIC_QUERY_CACHE_MAX, settings.fanout_deadline_ms / 1000
        )
        self._running: dict[tuple[str, str], asyncio.Task[bytes]] = {}
        self._warm_up_task: asyncio.Task[None] | None = None

    @property
    def is_enabled(self) -> bool:
        return self.model is not None

    def model_for(self, model_id: str) -> ModelInfo | None:
        """Returns the model whose vectors have this id, if it can embed queries here. It need not be the current model:
        vectors of the previous one are used until new ones are made."""
        if self.model is not None and self.model.id == model_id:
            return self.model
        named = next((model for model in NAMED_MODELS.values() if model.info.id == model_id), None)
        if named is None or named.missing_packages or find_files(named, self._data_dir) is None:
            return None
        return named.info

    async def embed_query(self, text: str, model_id: str | None = None) -> bytes:
        """Returns the vector of a query, of the current model unless another is named. Equal queries share one
        computation. Raises SemanticUnavailable, at the latest when `semantic_timeout_ms` have passed."""
        if self.model is None:
            raise SemanticUnavailable("semantic search is off")
        key = (model_id or self.model.id, text)
        if (reason := self._failures.get(key)) is not None:
            raise SemanticUnavailable(reason)
        if (vector := self._cache.get(key)) is not None:
            return vector
        task = self._running.get(key) or self._start(key)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(task)
        except TimeoutError:
            model = self._query_models.get(key[0])
            reason = f"embedding the query took longer than {self._timeout_s:g} s"
            if isinstance(model, LocalQueries) and not model.is_loaded:
                reason = "the model is being loaded"
            self._failures[key] = reason
            raise SemanticUnavailable(reason) from None

    async def embed_passages(self, texts: Sequence[str]) -> list[bytes]:
        """Returns the vectors of passages, in order, of the current model. For background work: it may take long."""
        if not texts:
            return []
        if self._passage_model is None:
            if self.model is None:
                raise SemanticUnavailable("semantic search is off")
            named = NAMED_MODELS.get(self.model.name)
            self._passage_model = self._endpoint if named is None else WorkerProcess(named, self._settings)
        return await self._passage_model.embed_passages(texts)

    async def load(self) -> None:
        """Loads a local model. If that fails, queries say why."""
        if self.model is None or self.model.name not in NAMED_MODELS:
            return
        model = self._query_model(self.model.id)
        assert isinstance(model, LocalQueries)
        try:
            await model.load()
        except SemanticUnavailable as error:
            logger.warning("semantic search is unavailable: {}", error.reason)

    def warm_up(self) -> None:
        """Loads a local model in the background a little later, so that the next search need not wait for it. Called
        when a library is used: until then, the server does without the memory that the model needs."""
        if self.model is not None and self._warm_up_task is None:
            self._warm_up_task = asyncio.create_task(self._load_later())

    async def close(self) -> None:
        tasks = [*self._running.values(), *([self._warm_up_task] if self._warm_up_task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for model in self._query_models.values():
            await model.close()
        if self._passage_model is not None:
            await self._passage_model.close()

    def _start(self, key: tuple[str, str]) -> asyncio.Task[bytes]:
        model_id, text = key
        task = asyncio.create_task(self._query_model(model_id).embed_query(text, self._timeout_s))
        self._running[key] = task
        task.add_done_callback(partial(self._finish, key))
        return task

    def _finish(self, key: tuple[str, str], task: asyncio.Task[bytes]) -> None:
        del self._running[key]
        # Reading the exception marks it as handled, even if all callers have timed out.
        error = None if task.cancelled() else task.exception()
        if isinstance(error, SemanticUnavailable):
            self._failures[key] = error.reason
        elif error is None and not task.cancelled():
            self._cache[key] = task.result()

    def _query_model(self, model_id: str) -> _QueryModel:
        model = self._query_models.get(model_id)
        if model is None:
            named = next((model for model in NAMED_MODELS.values() if model.info.id == model_id), None)
            if named is not None:
                model = LocalQueries(named, self._data_dir)
            elif self.model is not None and self.model.id == model_id:
                model = self._endpoint
            else:
                raise SemanticUnavailable(f"the model {model_id} is not available any more")
            self._query_models[model_id] = model
        return model

    async def _load_later(self) -> None:
        await asyncio.sleep(_WARM_UP_AFTER_S)
        await self.load()


def model_description(settings: Settings) -> str:
    """Returns the model for a reader: `fast`, `fast (auto)` if that is what `auto` chose, the name of a model behind an
    API, or `off`."""
    model = configured_model(settings)
    if model is None:
        return "off"
    if model.name not in NAMED_MODELS:
        return settings.semantic_endpoint_model
    return f"{model.name} (auto)" if settings.semantic_model == "auto" else model.name


def configured_model(settings: Settings) -> ModelInfo | None:
    """Returns the model that the settings name, whether or not it is installed, or None if they name none."""
    info = _configured_model(settings)
    return replace(info, weight=settings.semantic_weight) if info and settings.semantic_weight else info


def _configured_model(settings: Settings) -> ModelInfo | None:
    if settings.semantic_model not in SEMANTIC_MODELS:
        return endpoint_info(settings)
    if settings.semantic_model == "auto":
        best = best_model(Path(settings.data_dir))
        return best.info if best else None
    named = NAMED_MODELS.get(settings.semantic_model)
    return named.info if named else None
