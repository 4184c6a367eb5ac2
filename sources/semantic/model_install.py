"""Installs models into the data directory, from the internet or from a folder.

A model appears under its name only when all of its files are complete and have the expected checksums. An interrupted
download is kept and continued by the next one. A running server may keep using the files that are replaced.
"""

import asyncio
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path
from urllib.parse import urljoin

from config.errors import InvalidParams, StorageError, Unavailable
from config.public_http import IncomingResponse, OutgoingRequestError, open_response
from sources.semantic.named_models import MODELS_FOLDER, ModelFile, NamedModel, installed_folder

# -- file download -----------------------------------------------------------------------------------------------------
# The download of one file of a model: continued after an interruption, and verified by its checksum.

_ATTEMPTS = 5
_PAUSE_S = 1.0
_REDIRECTS = (301, 302, 303, 307, 308)
_REDIRECTS_MAX = 5

# Called with the number of bytes that arrived; negative if a server starts again from the beginning.
Progress = Callable[[int], None]


class _InterruptedTransfer(Exception):
    """The next attempt continues it."""


class FileDownload:
    def __init__(self, url: str, file: ModelFile, path: Path, timeout_s: float, progress: Progress) -> None:
        self._url = url
        self._file = file
        self._path = path
        self._timeout_s = timeout_s
        self._progress = progress

    async def run(self) -> None:
        """Fetches what is missing of the file. Raises Unavailable; what has arrived is kept if it may be right."""
        self._progress(self._size())
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if self._size() < self._file.size:
                    await self._transfer(self._url)
                break
            except (_InterruptedTransfer, OutgoingRequestError) as error:
                if attempt == _ATTEMPTS:
                    raise Unavailable(f"{self._url}: {error}; run the command again to continue") from error
                await asyncio.sleep(_PAUSE_S)
        if not await asyncio.to_thread(has_checksum, self._path, self._file):
            expected = f"expected SHA-256 {self._file.sha256}"
            self._reject(f"the checksum of {self._file.name} is wrong; {expected}")

    async def _transfer(self, url: str, redirects: int = 0) -> None:
        size = self._size()
        headers = {"Range": f"bytes={size}-"} if size else {}
        async with open_response("GET", url, headers=headers, timeout_s=self._timeout_s) as response:
            if response.status not in _REDIRECTS:
                await self._receive(response)
                return
            target = urljoin(url, response.headers.get("location", ""))
        # The checksum decides what is accepted, so it does not matter where a redirect leads.
        if redirects == _REDIRECTS_MAX or not target.startswith(("https://", "http://")):
            raise Unavailable(f"{self._url}: redirected too often, or to an address that is not HTTP")
        await self._transfer(target, redirects + 1)

    async def _receive(self, response: IncomingResponse) -> None:
        if response.status >= 500:
            raise _InterruptedTransfer(f"answered with status {response.status}")
        if response.status not in (200, 206):
            raise Unavailable(f"{self._url}: answered with status {response.status}")
        if response.status == 200:
            self._progress(-self._size())
        with storage_errors(), self._path.open("wb" if response.status == 200 else "ab") as output:
            async for part in response.body:
                output.write(part)
                self._progress(len(part))
                if output.tell() > self._file.size:
                    break
        if self._size() > self._file.size:
            self._reject(f"{self._file.name} is larger than {self._file.size} bytes")
        if self._size() < self._file.size:
            raise _InterruptedTransfer(f"the connection ended after {self._size()} of {self._file.size} bytes")

    def _size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def _reject(self, reason: str) -> None:
        self._path.unlink(missing_ok=True)
        raise Unavailable(f"{self._url}: {reason}")


def has_checksum(path: Path, file: ModelFile) -> bool:
    try:
        with path.open("rb") as content:
            return file_digest(content, "sha256").hexdigest() in file.checksums
    except FileNotFoundError:
        return False


@contextmanager
def storage_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"the model cannot be written: {(error.strerror or str(error)).lower()}") from error


_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600


def is_intact(model: NamedModel, data_dir: Path) -> bool:
    """Whether the model is installed in the data directory and its files have the expected checksums."""
    folder = installed_folder(model, data_dir)
    return all(has_checksum(folder / file.name, file) for file in model.files)


async def download(
    model: NamedModel, data_dir: Path, *, mirror: str = "", timeout_s: float, progress: Progress
) -> Path:
    """Fetches the files of a model. With `mirror`, they are fetched from below that URL instead of their own."""
    with _prepare(model, data_dir) as partial:
        for file in model.files:
            url = f"{mirror.rstrip('/')}/{file.name}" if mirror else file.url
            await FileDownload(url, file, partial / file.name, timeout_s, progress).run()
        return await asyncio.to_thread(_publish, model, partial, data_dir)


def copy_from_folder(model: NamedModel, data_dir: Path, folder: Path) -> Path:
    """Copies the files of a model from a folder, in which they may have the names of any of their origins."""
    sources = {file: _find_in_folder(file, folder) for file in model.files}
    with _prepare(model, data_dir) as partial, storage_errors():
        for file, source in sources.items():
            shutil.copyfile(source, partial / file.name)
        return _publish(model, partial, data_dir)


def remove(model: NamedModel, data_dir: Path) -> bool:
    """Removes a model from the data directory, and what an interrupted download left. Returns whether it was there."""
    folder = installed_folder(model, data_dir)
    is_installed = folder.exists()
    with storage_errors():
        for path in (folder, _partial_folder(model, data_dir)):
            shutil.rmtree(path, ignore_errors=not path.exists())
    return is_installed


def _partial_folder(model: NamedModel, data_dir: Path) -> Path:
    return data_dir / MODELS_FOLDER / f"{model.name}.unfinished"


@contextmanager
def _prepare(model: NamedModel, data_dir: Path) -> Iterator[Path]:
    """Yields the folder for unfinished files. Two commands cannot install the same model at the same time."""
    partial = _partial_folder(model, data_dir)
    with storage_errors():
        partial.parent.mkdir(_DIRECTORY_MODE, exist_ok=True)
        partial.mkdir(_DIRECTORY_MODE, exist_ok=True)
        descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(f"the model {model.name} is being installed by another process") from None
        yield partial
    finally:
        os.close(descriptor)


def _publish(model: NamedModel, partial: Path, data_dir: Path) -> Path:
    """Gives the complete files their final place, in one step."""
    folder, previous = installed_folder(model, data_dir), partial.with_suffix(".previous")
    with storage_errors():
        for path in (partial / file.name for file in model.files):
            path.chmod(_FILE_MODE)
            with path.open("rb") as written:
                os.fsync(written.fileno())
        shutil.rmtree(previous, ignore_errors=True)
        with suppress(FileNotFoundError):
            folder.rename(previous)
        partial.rename(folder)
        shutil.rmtree(previous, ignore_errors=True)
    return folder


def _find_in_folder(file: ModelFile, folder: Path) -> Path:
    if not folder.is_dir():
        raise InvalidParams(f"--from: expected a folder, got {str(folder)!r}")
    names = {file.name, file.url.rpartition("/")[2], file.package_path.rpartition("/")[2]}
    found = [path for path in sorted(folder.rglob("*")) if path.name in names and path.is_file()]
    if not found:
        raise InvalidParams(f"--from: {folder} contains no file {' or '.join(sorted(names))}")
    intact = next((path for path in found if has_checksum(path, file)), None)
    if intact is None:
        raise InvalidParams(f"--from: the checksum of {found[0]} is wrong; expected SHA-256 {file.sha256}")
    return intact
