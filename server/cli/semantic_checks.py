"""The checks of `florilegium doctor` for semantic search. They use the model once, as a search would."""

import asyncio
from pathlib import Path

from auth.postgres_schema import CONTROL_SCHEMA_NAME
from config.errors import StorageError
from config.paths import DataRoot
from config.postgres.connection import ConnectionOptions, Transaction
from config.postgres.errors import postgres_errors
from config.postgres.threads import ConnectionThreads
from config.settings import Settings
from server.doctor.check import Check
from server.stores import control_location
from sources.semantic.endpoint import EmbeddingEndpoint
from sources.semantic.model import ModelInfo, SemanticUnavailable
from sources.semantic.named_models import NAMED_MODELS, NO_MODEL, best_model, load_model
from sources.semantic.reranker import Reranker
from sources.semantic.service import configured_model
from sources.storage.postgres.vectors.extension import VectorExtensionMemory

_TEXT = "a short text"
_EFFECT = "searches find words only"


async def check_semantic(settings: Settings) -> list[Check]:
    checks = [await _check_model(settings)]
    if settings.storage_url and configured_model(settings) is not None:
        checks += await _check_pgvector(settings)
    if settings.reranker_url:
        checks.append(await _check_reranker(settings))
    return checks


async def _check_model(settings: Settings) -> Check:
    name, model = "semantic search", configured_model(settings)
    if model is None:
        return Check(name, "ok", _off(settings))
    try:
        await _embed(settings, model)
    except SemanticUnavailable as error:
        return Check(name, "warn", f"{error.reason}; until then, {_EFFECT}")
    where = "" if model.name in NAMED_MODELS else f" at {settings.semantic_model}"
    choice = "auto chose " if settings.semantic_model == "auto" else ""
    return Check(name, "ok", f"{choice}{model.id}{where}, {model.dimension} dimensions, weight {model.weight:g}")


async def _check_pgvector(settings: Settings) -> list[Check]:
    """Returns nothing if the database cannot be read, which another check reports."""
    location = control_location(settings, DataRoot(Path(settings.data_dir)))
    assert isinstance(location, ConnectionOptions)
    threads = ConnectionThreads(location, 1, "doctor")
    extension = VectorExtensionMemory()
    try:
        with postgres_errors():
            await threads.run(Transaction(schema=CONTROL_SCHEMA_NAME, is_read_only=True), extension.check)
        version = ".".join(map(str, extension.require().version))
    except SemanticUnavailable as error:
        return [Check("pgvector", "warn", f"{error.reason}; until then, {_EFFECT}")]
    except StorageError:
        return []
    finally:
        await threads.close()
    return [Check("pgvector", "ok", f"{version} is installed in the database")]


def _off(settings: Settings) -> str:
    if settings.semantic_model == "auto":
        return f"off; {NO_MODEL}"
    best = best_model(Path(settings.data_dir))
    if best is None:
        return "off"
    return f"off; set semantic_model = {best.name} to use the model that is installed"


async def _embed(settings: Settings, model: ModelInfo) -> None:
    named = NAMED_MODELS.get(model.name)
    if named is not None:
        local = await asyncio.to_thread(load_model, named, Path(settings.data_dir))
        await asyncio.to_thread(local.embed, [_TEXT])
    else:
        await EmbeddingEndpoint(settings).embed_query(_TEXT, settings.semantic_endpoint_timeout_s)


async def _check_reranker(settings: Settings) -> Check:
    try:
        await Reranker(settings).scores(_TEXT, [_TEXT, "another"])
    except SemanticUnavailable as error:
        return Check("reranker", "warn", f"{error.reason}; until then, hits keep their order")
    return Check("reranker", "ok", f"{settings.reranker_url} scores hits")
