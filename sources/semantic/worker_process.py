"""Embeds passages with a local model in a child process, so that background work never delays a call.

The process is started when there is something to embed and ends when it was idle for a while. If it is killed, the
batch is sent to a new one.
"""

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec
from loguru import logger
from msgspec import Struct

from config.settings import Settings
from sources.semantic.model import SemanticUnavailable, clean_text
from sources.semantic.named_models import NamedModel, locate_model

# -- worker messages ---------------------------------------------------------------------------------------------------
# The messages between the server and the process that embeds passages, as MessagePack with a length in front.

HEADER_BYTES = 4


class Vectors(Struct, frozen=True, tag=True):
    vectors: list[bytes]


class WorkerFailure(Struct, frozen=True, tag=True):
    """Why the model could not be loaded. The process ends after it."""

    reason: str


WorkerResponse = Vectors | WorkerFailure

encode_texts = msgspec.msgpack.Encoder().encode
decode_texts = msgspec.msgpack.Decoder(list[str]).decode
encode_response = msgspec.msgpack.Encoder().encode
decode_response = msgspec.msgpack.Decoder(WorkerResponse).decode


def frame(message: bytes) -> bytes:
    return len(message).to_bytes(HEADER_BYTES, "big") + message


_ROOT = Path(__file__).resolve().parents[2]
_MODULE = "sources.semantic.worker"
_ATTEMPTS = 3
_LOGGED_BYTES = 4_000
# The libraries start no threads of their own: the worker has one for each core that it may use.
_ENVIRONMENT = {
    "PYTHONPATH": str(_ROOT),
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


# The process takes the memory of its model, so it ends when nothing was embedded for a minute.
_IDLE_S = 60.0
# The process has the lowest priority, so a batch takes long on a machine that is busy all the time.
_DEADLINE_S = 600.0


class WorkerProcess:
    """Batches are embedded one after the other, in the order of the calls."""

    def __init__(
        self, model: NamedModel, settings: Settings, *, idle_s: float = _IDLE_S, deadline_s: float = _DEADLINE_S
    ) -> None:
        self._model = model
        self._idle_s = idle_s
        self._deadline_s = deadline_s
        self._settings = settings
        self._lock = asyncio.Lock()
        self._process: Process | None = None
        self._errors: IO[bytes] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def embed_passages(self, texts: Sequence[str]) -> list[bytes]:
        async with self._lock:
            self._cancel_timer()
            try:
                return await self._embed([clean_text(text) for text in texts])
            except BaseException:
                # Also if the caller was cancelled: the response would be taken for that of the next batch.
                await self._end()
                raise
            finally:
                if self._process is not None:
                    loop = asyncio.get_running_loop()
                    self._idle_timer = loop.call_later(self._idle_s, self._close_if_idle)

    async def close(self) -> None:
        self._is_closed = True
        self._kill()
        async with self._lock:
            await self._end()

    async def _embed(self, texts: list[str]) -> list[bytes]:
        for _ in range(_ATTEMPTS):
            try:
                async with asyncio.timeout(self._deadline_s):
                    return await self._request(texts)
            except TimeoutError:
                seconds = self._deadline_s
                raise SemanticUnavailable(f"embedding a batch took longer than {seconds:g} s") from None
            except (OSError, asyncio.IncompleteReadError, msgspec.MsgspecError):
                errors = self._errors
                code = await self._end()
                logger.warning("the process that embeds passages ended with code {}{}", code, _tail(errors))
                if self._is_closed:
                    break
        raise SemanticUnavailable("the process that embeds passages ended unexpectedly")

    async def _request(self, texts: list[str]) -> list[bytes]:
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(frame(encode_texts(texts)))
        # Not drained first: the process may already have failed, and says why.
        header = await process.stdout.readexactly(HEADER_BYTES)
        response: WorkerResponse = decode_response(await process.stdout.readexactly(int.from_bytes(header, "big")))
        if isinstance(response, WorkerFailure):
            raise SemanticUnavailable(response.reason)
        return response.vectors

    async def _start(self) -> Process:
        if self._is_closed:
            raise SemanticUnavailable("the server is stopping")
        # Files that are missing are noticed without starting a process.
        await asyncio.to_thread(locate_model, self._model, Path(self._settings.data_dir))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when nothing refers to it any more
        arguments = (self._model.name, self._settings.data_dir, str(self._settings.embedding_cpu_percent))
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", _MODULE, *arguments),
            stdin=PIPE,
            stdout=PIPE,
            stderr=self._errors,
            # The environment is not passed on: it may contain secrets.
            env=_ENVIRONMENT,
            # So that Ctrl-C reaches the server only.
            start_new_session=True,
        )
        return self._process

    def _close_if_idle(self) -> None:
        """Closes the pipe, whereupon the process ends. The next batch gets a new one."""
        process = self._process
        if process is not None and process.stdin is not None and not self._lock.locked():
            process.stdin.close()
            self._process = None

    async def _end(self) -> int:
        self._cancel_timer()
        self._kill()
        process, self._process = self._process, None
        return await process.wait() if process is not None else 0

    def _kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()

    def _cancel_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None


def _tail(errors: IO[bytes] | None) -> str:
    """Returns the end of what the process wrote to stderr."""
    if errors is None:
        return ""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - _LOGGED_BYTES))
    text = errors.read().decode(errors="replace").strip()
    return f":\n{text}" if text else ""
