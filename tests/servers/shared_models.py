"""Local models for tests that are not about the processes of models, loaded once into the process of the tests.

The product embeds passages in a process with the lowest priority, which gets no CPU time while other tests run.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest.mock import patch

from sources.semantic import named_models, service
from sources.semantic.model import EmbeddingModel
from sources.semantic.named_models import ModelPaths, NamedModel, load_model
from sources.semantic.worker_process import WorkerProcess

_load = named_models._load


class _InThisProcess(WorkerProcess):
    async def _request(self, texts: list[str]) -> list[bytes]:
        model = await asyncio.to_thread(load_model, self._model, Path(self._settings.data_dir))
        return await asyncio.to_thread(model.embed, texts)


def _load_once(model: NamedModel, paths: ModelPaths) -> EmbeddingModel:
    """Tests damage the files of models."""
    return _loaded(model, paths, *(path.stat().st_mtime_ns for path in paths.files))


@cache
def _loaded(model: NamedModel, paths: ModelPaths, *_: int) -> EmbeddingModel:
    return _load(model, paths)


@contextmanager
def shared_models() -> Iterator[None]:
    with patch.object(named_models, "_load", _load_once), patch.object(service, "WorkerProcess", _InThisProcess):
        yield
