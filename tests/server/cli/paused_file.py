"""A file that cannot be read to its end until the test allows it."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Self


class PausedFile:
    """A named pipe in place of a file. Every reader gets the beginning of the file, and then waits for the rest until
    `release` is called; readers that come later find an empty file.

    Each reader gets a pipe of its own: on a shared one, a reader that opens it just after another has closed it would
    continue in the middle.
    """

    def __init__(self, path: Path, beginning: bytes, rest: bytes) -> None:
        self._path = path
        self._beginning = beginning
        self._rest = rest
        self._released = threading.Event()
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._serve, daemon=True)]

    def __enter__(self) -> Self:
        os.mkfifo(self._path)
        self._threads[0].start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopped.set()
        self.release()
        # The serving thread waits for a reader to open the pipe.
        reader = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        for thread in self._threads:
            thread.join(30)
        os.close(reader)
        self._path.unlink()

    def release(self) -> None:
        self._released.set()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            pipe = self._path.open("wb")
            # The reader cannot close its pipe before it is fed, so its next open finds the new one.
            new = self._path.with_suffix(".new")
            os.mkfifo(new)
            new.replace(self._path)
            thread = threading.Thread(target=self._feed, args=(pipe,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _feed(self, pipe: IO[bytes]) -> None:
        with suppress(BrokenPipeError), pipe:
            if not self._released.is_set():
                pipe.write(self._beginning)
                pipe.flush()
                self._released.wait(60)
                pipe.write(self._rest)
