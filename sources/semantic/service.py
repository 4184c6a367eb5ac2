"""The service that searches and background jobs use to embed texts.

Texts leave this machine only if `semantic_model` is a URL.
"""

import asyncio
import os
import re
import time
from collections.abc import Iterable, Sequence
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
from sources.semantic.named_models import MULTILINGUAL, NAMED_MODELS, NamedModel, best_model, is_usable, load_model
from sources.semantic.worker_process import WorkerProcess
from sources.text.folding import fold, is_vietnamese
from sources.text.segmentation import STOPWORDS, UNSPACED_RUN

# -- languages ---------------------------------------------------------------------------------------------------------
# How much of some texts is in other languages than English: `auto` chooses a model by it.

# Enough of a text to recognise its language, and fewer words than which say nothing.
_TEXT_MAX_CHARS = 1_000
_WORDS_MIN = 5
# Of English prose, 30 to 50 % are words of the list; of German, 4 %, because of "in", "an" and "so".
_ENGLISH_MIN = 0.15
# Lists, tables and code have few of these words, too. They are in another language only if that can be seen: by
# letters, or by frequent words of languages that are written with few accents.
_LETTERS_MIN = 0.01
_FUNCTION_WORDS_MIN = 0.08
_FUNCTION_WORDS = frozenset({
    "che", "dan", "das", "de", "del", "der", "di", "die", "een", "ein", "el", "en", "er", "et", "het", "il", "ist",
    "la", "las", "le", "les", "los", "na", "nicht", "nie", "och", "og", "op", "que", "som", "un", "una", "und", "van",
    "voor", "yang", "zu",
})  # fmt: skip
_FOREIGN_LETTER = re.compile("[^\\W\\d_a-zA-Z]")
# Greek, Armenian, Hebrew, Georgian and the scripts of India: `multilingual` does not know these languages.
_UNKNOWN_LETTER = re.compile("[\u0370-\u03ff\u0530-\u05ff\u0900-\u0dff\u10a0-\u10ff]")


def foreign_share(texts: Iterable[str]) -> float:
    """Returns the share of the texts, by their length, that is in a language other than English which `multilingual`
    knows. Texts whose language is not recognized are left out."""
    foreign = total = 0
    for text in (text[:_TEXT_MAX_CHARS] for text in texts):
        unspaced = sum(map(len, UNSPACED_RUN.findall(text)))
        words = fold(text).split()
        if len(words) < _WORDS_MIN and 2 * unspaced < len(text):
            continue
        total += len(text)
        if 2 * unspaced >= len(text) or _is_foreign(text, words):
            foreign += len(text)
    return foreign / total if total else 0.0


def _is_foreign(text: str, words: list[str]) -> bool:
    """Whether a text in a script with spaces is."""
    if sum(word in STOPWORDS for word in words) >= _ENGLISH_MIN * len(words) or is_vietnamese(text):
        return False
    letters, unknown = len(_FOREIGN_LETTER.findall(text)), len(_UNKNOWN_LETTER.findall(text))
    if 2 * unknown > letters:
        return False
    is_seen = sum(word in _FUNCTION_WORDS for word in words) >= _FUNCTION_WORDS_MIN * len(words)
    return is_seen or letters >= _LETTERS_MIN * len(text)


# From this share of texts in other languages on, `auto` chooses the model that knows them. It is worse in English.
_FOREIGN_MIN = 0.2
# Queries whose vectors are kept, for the next pages and for several sources.
_SEMANTIC_QUERY_CACHE_MAX = 1000

# -- local queries -----------------------------------------------------------------------------------------------------
# Embeds queries with a local model in this process, on one thread. The model is loaded on that thread on first use.
# With an instant model, once it is loaded, the event loop embeds queries itself.

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

    @property
    def is_instant(self) -> bool:
        """Whether `embed` may be called on the event loop."""
        return self._model is not None and self._named.is_instant

    async def load(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, self._loaded)

    async def embed_query(self, text: str, timeout_s: float) -> bytes:
        """Embeds a query. One whose turn comes after its time is up is dropped: its caller has timed out."""
        due = time.monotonic() + timeout_s
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._embed, text, due)

    async def correct(self, typed: str, corrected: str) -> str:
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._correct, typed, corrected)

    def _correct(self, typed: str, corrected: str) -> str:
        count = self._loaded().count_tokens
        old, new = typed.split(), corrected.split()
        if len(old) != len(new):
            return typed
        return " ".join(b if a != b and count(b) < count(a) else a for a, b in zip(old, new, strict=True))

    async def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _embed(self, text: str, due: float) -> bytes:
        if time.monotonic() > due:
            raise SemanticUnavailable("too many queries are waiting for the model")
        return self.embed(text)

    def embed(self, text: str) -> bytes:
        vector = (self._model or self._loaded()).embed_query(text)
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
    """`model` is known without loading it, and None if semantic search is off. `choices` are the models that a library
    may have: more than one if `auto` chooses by the languages of its texts."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._data_dir = Path(settings.data_dir)
        self._timeout_s = settings.semantic_timeout_ms / 1000
        self.choices = configured_models(settings)
        self._choices_by_id = {model.id: model for model in self.choices}
        self.model = self.choices[0] if self.choices else None
        self._query_models: dict[str, _QueryModel] = {}
        self._passage_models: dict[str, _PassageModel] = {}
        self._endpoint = EmbeddingEndpoint(settings)
        self._cache: LRUCache[tuple[str, str], bytes] = LRUCache(_SEMANTIC_QUERY_CACHE_MAX)
        # A search asks again for each round of hits. It must neither wait again nor rank the rounds in different ways,
        # so a failure is kept for as long as a search may take.
        self._failures: TTLCache[tuple[str, str], str] = TTLCache[tuple[str, str], str](
            _SEMANTIC_QUERY_CACHE_MAX, settings.fanout_deadline_ms / 1000
        )
        self._running: dict[tuple[str, str], asyncio.Task[bytes]] = {}
        # The callers that wait for the vector of a query, and the timer that ends their wait.
        self._waiting: dict[tuple[str, str], tuple[asyncio.TimerHandle, list[asyncio.Future[bytes]]]] = {}
        self._warm_up_task: asyncio.Task[None] | None = None

    def model_for(self, model_id: str) -> ModelInfo | None:
        """Returns the model whose vectors have this id, if it can embed queries here. It need not be the current model:
        vectors of the previous one are used until new ones are made."""
        if (choice := self._choices_by_id.get(model_id)) is not None:
            return choice
        named = next((model for model in NAMED_MODELS.values() if model.info.id == model_id), None)
        return named.info if named is not None and is_usable(named, self._data_dir) else None

    def choose(self, used: str | None, texts: Iterable[str]) -> ModelInfo:
        """Returns which of two choices a library with these texts gets. `used` is the model of its vectors: it is kept
        while the share of other languages is near the limit, because a change makes all vectors again."""
        limit = _FOREIGN_MIN if used != MULTILINGUAL.info.id else _FOREIGN_MIN / 2
        return self.choices[1 if foreign_share(texts) >= limit else 0]

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
        model = self._query_model(key[0])
        if isinstance(model, LocalQueries) and model.is_instant:
            try:
                vector = self._cache[key] = model.embed(text)
            except SemanticUnavailable as error:
                self._failures[key] = error.reason
                raise
            return vector
        loop = asyncio.get_running_loop()
        if key not in self._running:
            task = loop.create_task(model.embed_query(text, self._timeout_s))
            self._running[key] = task
            task.add_done_callback(partial(self._finish, key))
        if key not in self._waiting:
            self._waiting[key] = loop.call_later(self._timeout_s, self._time_out, key), []
        # A future for each caller, of which any may be cancelled. All sources of a search wait for the same vector: a
        # shield and a timeout for each of them would take longer than all else that they do here.
        caller: asyncio.Future[bytes] = loop.create_future()
        self._waiting[key][1].append(caller)
        return await caller

    async def correct(self, typed: str, corrected: str, model_id: str) -> str:
        """Returns a query with those of its corrections, word by word, that the model knows better than what was typed:
        a misspelled word has more tokens. A word that the library merely does not contain has as few. What a model
        behind an API knows is not known."""
        model = self._query_model(model_id)
        return await model.correct(typed, corrected) if isinstance(model, LocalQueries) else typed

    async def embed_passages(self, texts: Sequence[str], model: ModelInfo | None = None) -> list[bytes]:
        """Returns the vectors of passages, in order, of the current model unless another is given. For background work:
        it may take long."""
        if not texts:
            return []
        if (model := model or self.model) is None:
            raise SemanticUnavailable("semantic search is off")
        if model.id not in self._passage_models:
            named = NAMED_MODELS.get(model.name)
            self._passage_models[model.id] = self._endpoint if named is None else WorkerProcess(named, self._settings)
        return await self._passage_models[model.id].embed_passages(texts)

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
        for passage_model in self._passage_models.values():
            await passage_model.close()

    def _time_out(self, key: tuple[str, str]) -> None:
        model = self._query_models.get(key[0])
        reason = f"embedding the query took longer than {self._timeout_s:g} s"
        if isinstance(model, LocalQueries) and not model.is_loaded:
            reason = "the model is being loaded"
        self._failures[key] = reason
        self._end_waits(key, SemanticUnavailable(reason))

    def _finish(self, key: tuple[str, str], task: asyncio.Task[bytes]) -> None:
        del self._running[key]
        # Reading the exception marks it as handled, even if all callers have timed out.
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            self._cache[key] = task.result()
        elif isinstance(error, SemanticUnavailable):
            # Callers that timed out were already given a reason, which is more useful than that the query was dropped.
            self._failures.setdefault(key, error.reason)
        self._end_waits(key, error or task.result())

    def _end_waits(self, key: tuple[str, str], outcome: bytes | BaseException) -> None:
        """Answers the callers that wait for the vector of a query, if there are any."""
        if key not in self._waiting:
            return
        timer, callers = self._waiting.pop(key)
        timer.cancel()
        for caller in callers:
            if caller.done():  # it was cancelled
                continue
            if isinstance(outcome, BaseException):
                caller.set_exception(outcome)
            else:
                caller.set_result(outcome)

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
    """Returns the model for a reader: `fast`, `fast (auto)` or `minilm and multilingual (auto)` if that is what `auto`
    chose, the name of a model behind an API, or `off`."""
    models = configured_models(settings)
    if not models:
        return "off"
    if models[0].name not in NAMED_MODELS:
        return settings.semantic_endpoint_model
    names = " and ".join(model.name for model in models)
    return f"{names} (auto)" if settings.semantic_model == "auto" else names


def configured_models(settings: Settings) -> tuple[ModelInfo, ...]:
    """Returns the models that the settings name, whether or not they are installed: none, one, or two if `auto` has one
    for English and `multilingual` for other languages."""
    if settings.semantic_model not in SEMANTIC_MODELS:
        infos = [endpoint_info(settings)]
    elif settings.semantic_model == "auto":
        data_dir = Path(settings.data_dir)
        best = best_model(data_dir)
        infos = [best.info] if best else []
        if best not in (None, MULTILINGUAL) and is_usable(MULTILINGUAL, data_dir):
            infos.append(MULTILINGUAL.info)
    else:
        infos = [NAMED_MODELS[name].info for name in (settings.semantic_model,) if name in NAMED_MODELS]
    weight = settings.semantic_weight
    return tuple(replace(info, weight=weight) if weight else info for info in infos)


def configured_model(settings: Settings) -> ModelInfo | None:
    """Returns the first of these models."""
    return next(iter(configured_models(settings)), None)
