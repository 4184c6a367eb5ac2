"""The download of one file of a model: continued after an interruption, and verified by its checksum."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from urllib.parse import urljoin

from config.errors import StorageError, Unavailable
from config.outgoing_http import IncomingResponse, OutgoingRequestError, open_response
from sources.semantic.named_models import ModelFile

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
